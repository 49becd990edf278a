//! Settings that cannot be used are refused with a sentence, and passwords are in nothing that anybody reads.

use std::os::unix::fs::PermissionsExt;
use std::sync::LazyLock;

use orrery_testkit::binary::{Ran, orrery_in, run};
use orrery_testkit::postgres::{Database, is_missing, shared};
use orrery_testkit::wait::wait_until;

use super::{Demo, TABLES, sink, wait_for_rows_of};

/// A password that is like no other text.
const PASSWORD: &str = "correct-horse-4711";

#[test]
fn settings_that_cannot_be_used_are_refused_with_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for (settings, parts) in [
        ("[sinks.main]\nprojects = ['xlm']", &["sinks.main", "url"][..]),
        (
            "[sinks.main]\nurl = 'postgres://me:correct-horse-4711@h/d'",
            &["sinks.main.url", "password_file", "ORRERY_SINKS_NAME_PASSWORD"],
        ),
        ("[sinks.main]\nurl = 'postgres://h/d?sslmode=prefer'", &["prefer", "verify-full"]),
        ("[sinks.main]\nurl = 'postgres://h/d?options=-c'", &["sslmode, sslrootcert"]),
        ("[sinks.main]\nurl = 'mysql://h/d'", &["must begin with postgres://"]),
        ("[sinks.Main]\nurl = 'postgres://h/d'", &["line 2", "'Main'", "lower-case letters"]),
        ("[sinks.main]\nurl = 'postgres://h/d'\nproject = 'x'", &["line 3", "sinks.main.project"]),
        ("[sinks.main]\nurl = 'postgres://h/d'\nprojects = ['*', 'x']", &["\"*\" alone"]),
        ("[sinks.main]\nurl = 'postgres://h/d'\nprojects = ['a b']", &["no name of a project"]),
        ("[sinks.main]\nurl = 'postgres://h/d'\nschema = ''", &["sinks.main.schema"]),
    ] {
        std::fs::write(at.join("orrery.toml"), settings).unwrap();
        for verb in [&["config", "check"][..], &["sink", "list"], &["sink", "test", "main"]] {
            let ran = run(at, &[verb, &["--config", "orrery.toml", "--data-dir", "d"]].concat());
            ran.refuses(1, parts);
            assert!(!ran.stderr.contains(PASSWORD), "{}", ran.stderr);
        }
    }
    // A file with the password that is not there is told when the server is asked, not before.
    let settings = "[sinks.main]\nurl = 'postgres://me@h/d'\npassword_file = 'nowhere'\n";
    std::fs::write(at.join("orrery.toml"), settings).unwrap();
    let arguments = ["sink", "test", "main", "--config", "orrery.toml", "--data-dir", "d"];
    run(at, &arguments).refuses(1, &["sinks.main.password_file, nowhere"]);
    // A password of a sink without an address is no setting.
    let mut odd = orrery_in(at);
    odd.args(["config", "check"]).env("ORRERY_SINKS_X_PASSWORD", PASSWORD);
    let odd: Ran = odd.output().unwrap().into();
    assert_eq!(odd.code, 0);
    let told = "ORRERY_SINKS_X_PASSWORD is not a setting";
    assert!(odd.stderr.contains(told) && !odd.stderr.contains(PASSWORD), "{}", odd.stderr);
}

/// The role of which alone the server wants a password.
static ROLE: LazyLock<&str> = LazyLock::new(|| {
    let made = format!("CREATE ROLE scram LOGIN PASSWORD '{PASSWORD}'");
    assert!(shared().psql("postgres", &made).status.success());
    "scram"
});

/// A database into which that role writes.
fn with_password() -> Database<'static> {
    let database = Database::new(&[]);
    database.sql(&format!("GRANT CREATE ON DATABASE {} TO {}", database.name, *ROLE));
    database
}

#[test]
fn passwords_are_in_nothing_that_anybody_reads() {
    if is_missing() {
        return;
    }
    let database = with_password();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, format!("{PASSWORD}\n")).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let url = format!("postgres://scram@127.0.0.1:{}/{}", database.server.port, database.name);
    let settings = format!("{}password_file = '{}'\n", sink(&url, "['*']"), file.display());
    let demo = Demo::with(&settings);
    TABLES.iter().for_each(|table| wait_for_rows_of(&database, table));
    let mut seen = vec![
        format!("{:?}", demo.service.log()),
        demo.service.health().to_string(),
        demo.service.metrics(),
        database.sql("select string_agg(a::text, ' ') from pg_stat_activity as a"),
        database.server.log(),
    ];
    let mut show = |arguments: &[&str]| {
        let ran = demo.sink(arguments);
        seen.push(format!("{}{}", ran.stdout, ran.stderr));
    };
    for arguments in [&["list"][..], &["status"], &["test", "main"], &["check", "main"]] {
        show(arguments);
    }
    let config = ["--config", "orrery.toml"];
    for verb in [&["config", "print"][..], &["sink", "list"], &["sink", "test", "main"]] {
        let ran = run(demo.at(), &[verb, &config].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        seen.push(format!("{}{}", ran.stdout, ran.stderr));
    }
    // Of a wrong one, too, which the service reads when it connects again.
    let wrong = format!("{PASSWORD}-not");
    std::fs::write(&file, &wrong).unwrap();
    database.sql("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'scram'");
    let reason = wait_until("the password is refused", || {
        let status = demo.status();
        let reason = status["reason"].as_str().filter(|it| it.contains("password"));
        reason.map(str::to_owned).ok_or_else(|| status.clone())
    });
    let refused = demo.sink(&["test", "main"]);
    assert_eq!(refused.code, 1);
    seen.extend([reason, refused.stderr, format!("{:?}", demo.service.log())]);
    seen.push(demo.service.health().to_string());
    for text in &seen {
        assert!(!text.contains(PASSWORD), "{text}");
    }
    // Nor in the arguments and the first environment of any process of the service.
    let arguments = std::fs::read(format!("/proc/{}/cmdline", demo.service.id())).unwrap();
    assert!(!String::from_utf8_lossy(&arguments).contains(PASSWORD));
    // What was right before is right again.
    std::fs::write(&file, PASSWORD).unwrap();
    wait_until("it is connected again", || demo.status()["connected"] == true);
}

#[test]
fn variables_of_the_environment_name_a_sink() {
    if is_missing() {
        return;
    }
    let database = with_password();
    let url = format!("postgres://scram@127.0.0.1:{}/{}", database.server.port, database.name);
    let directory = tempfile::tempdir().unwrap();
    let variables = [
        ("ORRERY_SINKS_OTHER_URL", url.as_str()),
        ("ORRERY_SINKS_OTHER_PROJECTS", "xlm,usdc"),
        ("ORRERY_SINKS_OTHER_PASSWORD", PASSWORD),
    ];
    let ran = |arguments: &[&str]| -> Ran {
        let mut command = orrery_in(directory.path());
        command.args(arguments).args(["--data-dir", "d"]).envs(variables).output().unwrap().into()
    };
    let printed = ran(&["config", "print"]);
    let printed = printed.succeeded();
    assert!(printed.contains("[sinks.other]") && !printed.contains(PASSWORD), "{printed}");
    assert_eq!(ran(&["sink", "test", "other"]).json()["user"], "scram");
    let listed = ran(&["sink", "list"]);
    assert_eq!(listed.json()[0]["projects"], serde_json::json!(["xlm", "usdc"]));
    assert!(!listed.stdout.contains(PASSWORD), "{}", listed.stdout);
}
