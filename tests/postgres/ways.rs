//! Ways to a server: passwords, TLS, poolers, and servers that are not what is needed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use orrery_postgres::{Password, ServerUrl, SinkError, check};
use orrery_testkit::postgres::{self, Pooler, Server, has, is_missing};

use crate::world::{Database, add, filled, project, transfers, writer};

#[tokio::test(flavor = "multi_thread")]
async fn passwords_and_names_that_are_refused_are_told() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    database.server.psql("postgres", "CREATE ROLE scram LOGIN PASSWORD 'hunter2'");
    database.sql("GRANT ALL ON SCHEMA orrery, xlm TO scram");
    let address = |user: &str, name: &str| {
        let port = database.server.port;
        ServerUrl::parse(&format!("postgres://{user}@127.0.0.1:{port}/{name}")).unwrap()
    };
    let url = address("scram", &database.name);
    let connected = url.clone().with_password(Password::new("hunter2\n")).connect().await.unwrap();
    assert_eq!(orrery_postgres::examine(&connected, &["xlm"]).await.unwrap().user, "scram");
    // Nothing of it is in the server's lists.
    assert_eq!(
        database.sql("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%hunter2%'"),
        "1"
    );
    for (url, expected) in [
        (url.clone().with_password(Password::new("hunter3")), "check the user, the password"),
        (url, "wants a password"),
        (address("nobody_there", &database.name), "check the user"),
        (address(&database.role(), "no_database"), "create the database"),
    ] {
        match url.connect().await {
            Err(SinkError::Refused(said)) => {
                assert!(said.contains(expected) && !said.contains("hunter"), "{said}");
            }
            other => panic!("{other:?}"),
        }
    }
    let nobody = ServerUrl::parse("postgres://x@127.0.0.1:1/x").unwrap().connect().await;
    assert!(matches!(nobody, Err(SinkError::Lost(_))), "{nobody:?}");
    // The second host takes the connection.
    let both = format!(
        "postgres://{}@127.0.0.1:1,127.0.0.1:{}/{}",
        database.role(),
        database.server.port,
        database.name
    );
    ServerUrl::parse(&both).unwrap().connect().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_has_an_end() {
    if is_missing() {
        return;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("postgres://x@127.0.0.1:{port}/x?connect_timeout=1");
    let begun = std::time::Instant::now();
    let silent = ServerUrl::parse(&url).unwrap().connect().await;
    assert!(
        matches!(&silent, Err(SinkError::Lost(said)) if said.contains("within 1 s")),
        "{silent:?}"
    );
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_of_other_encodings_and_standbys_are_refused() {
    if is_missing() {
        return;
    }
    let mut server = Server::start(&[]);
    let sql = "CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0";
    assert!(server.psql("postgres", sql).status.success());
    let address = |name: &str, end: &str| {
        ServerUrl::parse(&format!("postgres://root@127.0.0.1:{}/{name}{end}", server.port)).unwrap()
    };
    let refused = address("ascii", "").connect().await;
    assert!(
        matches!(&refused, Err(SinkError::Refused(said)) if said.contains("is SQL_ASCII")),
        "{refused:?}"
    );
    let (here, standby) =
        (address("postgres", ""), address("postgres", "?target_session_attrs=read-write"));
    here.connect().await.unwrap();
    server.kill();
    let signal = server.directory.join("standby.signal");
    std::fs::write(&signal, "").unwrap();
    postgres::give(&signal);
    server.run();
    for url in [here, standby] {
        let refused = url.connect().await;
        assert!(
            matches!(&refused, Err(SinkError::Lost(said)) if said.contains("a standby")),
            "{refused:?}"
        );
    }
}

/// Makes an authority, and a certificate of it for `localhost`.
fn make_certificates(directory: &Path) {
    let script = "set -e; cd \"$1\"; \
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.pem -days 2 \
        -subj /CN=authority -addext basicConstraints=critical,CA:TRUE; \
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key -out server.csr -subj \
        /CN=localhost; \
        printf 'subjectAltName=DNS:localhost\\nbasicConstraints=CA:FALSE\\n' >extensions; \
        openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile extensions -out \
        server.crt; chmod 600 server.key";
    let output =
        postgres::command("sh").args(["-c", script, "sh"]).arg(directory).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_verified() {
    if is_missing() || !has("openssl") {
        return;
    }
    let mut server = Server::start(&[]);
    let address = |host: &str, end: &str| {
        ServerUrl::parse(&format!("postgres://root@{host}:{}/postgres?{end}", server.port)).unwrap()
    };
    let directory = server.directory.clone();
    let authority = directory.join("ca.pem");
    let trusting = format!("sslrootcert={}", authority.display());
    let without = address("localhost", "sslmode=no-verify");
    let cases = [
        (address("localhost", &format!("sslmode=verify-full&{trusting}")), None),
        (address("localhost", &format!("sslmode=require&{trusting}")), None),
        (address("localhost", "sslmode=no-verify"), None),
        (address("localhost", ""), None),
        (address("127.0.0.1", &format!("sslmode=verify-full&{trusting}")), Some("is not trusted")),
        (address("localhost", "sslmode=verify-full"), Some("is not trusted")),
        (
            address("localhost", "sslmode=verify-full&sslrootcert=/nowhere.pem"),
            Some("/nowhere.pem"),
        ),
    ];
    let refused = without.connect().await;
    assert!(
        matches!(&refused, Err(SinkError::Refused(said)) if said.contains("offers no TLS")),
        "{refused:?}"
    );
    make_certificates(&directory);
    server.kill();
    let configuration = directory.join("postgresql.conf");
    let text = std::fs::read_to_string(&configuration).unwrap();
    std::fs::write(&configuration, format!("{text}\nssl = on\n")).unwrap();
    server.run();
    for (url, refused) in cases {
        match (url.connect().await, refused) {
            (Ok(_), None) => {}
            (Err(SinkError::Refused(said)), Some(expected)) if said.contains(expected) => {}
            (other, expected) => panic!("{other:?} {expected:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn poolers_may_lend_connections_for_a_transaction() {
    if is_missing() || !has("pgbouncer") {
        return;
    }
    let database = Database::new();
    let pooler = Pooler::start(&database);
    let url = database.at(pooler.port);
    let (one, two) = (url.connect().await.unwrap(), url.connect().await.unwrap());
    let (project, mut other) = (project(), project());
    other.name = "other".to_owned();
    database.sql(&format!("CREATE SCHEMA other AUTHORIZATION {}", database.role()));
    other.schema = "other".to_owned();
    filled(&one, &project, &[transfers(&project, 0, 2)]).await;
    filled(&two, &other, &[transfers(&other, 0, 2)]).await;
    for number in 2..20 {
        let (first, second) =
            (transfers(&project, number, number + 1), transfers(&other, number, number + 1));
        let (first, second) = tokio::join!(add(&one, &project, &first), add(&two, &other, &second));
        first.unwrap();
        second.unwrap();
    }
    assert_eq!(database.sql("SELECT count(*) FROM xlm.transfer"), "20");
    assert_eq!(check(&one, &writer(), &other).await.unwrap()[0].difference(), None);
    // No setting and no statement of ours stays on the connection that both used.
    let stayed =
        "SELECT current_setting('search_path') || (SELECT count(*) FROM pg_prepared_statements)";
    let output = Command::new("psql")
        .args([
            "-X",
            "-At",
            "-h",
            "127.0.0.1",
            "-p",
            &pooler.port.to_string(),
            "-U",
            &database.role(),
        ])
        .args(["-d", &database.name, "-c", stayed])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "\"$user\", public0\n");
}
