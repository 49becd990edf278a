//! No delivery goes to an address that is not public, however its endpoint is written and whatever
//! its name resolves to. Observed on the wire: the test runs in a network namespace in which every
//! address is routed to the test, so that a connection to any address arrives.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use orrery::webhooks::message::format::Format;
use orrery::webhooks::target::{Endpoint, Lookup, Policy, Sender, Timeouts};
use orrery_testkit::wait::wait_in_task;

/// Set in the child process that runs in the network namespace.
const INSIDE: &str = "ORRERY_TEST_WEBHOOKS_INSIDE";
const TEST: &str = "addresses::no_connection_is_made_to_an_address_that_is_not_public";

/// Hosts whose addresses are not public, or that do not resolve.
const HOSTILE: &[&str] = &[
    // Loopback and unspecified addresses, in every notation that some parser accepts.
    "127.0.0.1",
    "127.0.0.1.",
    "127.1",
    "127.0.1",
    "127.127.127.127",
    "127.255.255.254",
    "2130706433",
    "017700000001",
    "0x7f000001",
    "0x7F.0x0.0x0.0x1",
    "0x7f.1",
    "0177.0.0.1",
    "0177.0.0.01",
    "00000177.0.0.1",
    "127.0.0.0x1",
    "127.0.0x0.1",
    "127.000.000.001",
    "0177.0.0.1.",
    "%31%32%37.0.0.1",
    "127%2e0%2e0%2e1",
    "１２７.0.0.1",
    "127。0。0。1",
    "①②⑦.⓪.⓪.①",
    "0",
    "0.0.0.0",
    "0x0",
    "00",
    "0.1.2.3",
    "[::1]",
    "[::]",
    "[0:0:0:0:0:0:0:1]",
    "[0000:0000:0000:0000:0000:0000:0000:0001]",
    "[::127.0.0.1]",
    "[::7f00:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    "[::FFFF:7F00:0001]",
    "[::ffff:0:127.0.0.1]",
    "[::ffff:0.0.0.0]",
    "[::1%25lo]",
    "[::1%lo]",
    "[fe80::1%25eth0]",
    // Private, shared and link-local.
    "10.0.0.1",
    "10.255.255.255",
    "167772161",
    "0xa000001",
    "012.0.0.1",
    "10.1",
    "172.16.0.1",
    "172.31.255.255",
    "2886729729",
    "192.168.0.1",
    "192.168.257",
    "3232235521",
    "0300.0250.0.1",
    "100.64.0.1",
    "100.127.255.255",
    "100.100.100.200",
    "169.254.169.254",
    "169.254.170.2",
    "169.254.43518",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "0xA9.0xFE.0xA9.0xFE",
    "168.63.129.16",
    "[::ffff:10.0.0.1]",
    "[::ffff:192.168.0.1]",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[fc00::1]",
    "[fd00::1]",
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "[fe80::1]",
    "[febf::1]",
    "[fec0::1]",
    // Reserved for other purposes.
    "192.0.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "[100::1]",
    "[2001:2::1]",
    "[2001:db8::1]",
    "[3fff::1]",
    "[4000::1]",
    "[5f00::1]",
    "[ff02::1]",
    // IPv4 addresses embedded in IPv6 addresses.
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::a00:1]",
    "[64:ff9b::169.254.169.254]",
    "[64:ff9b:1::8.8.8.8]",
    "[2002:7f00:1::]",
    "[2002:a9fe:a9fe::]",
    "[2001::7f00:1]",
    "[2001:0:53aa:64c:0:7bff:f5f5:fffe]",
    "[::8.8.8.8]",
    // Names.
    "localhost",
    "localhost.",
    "LOCALHOST",
    "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ",
    "private.test",
    "private.test.",
    "metadata.test",
    "mapped.test",
    "six.test",
    "nowhere.test",
    "empty.test",
    // Invalid hosts, and hosts that look like others.
    "",
    "me@127.0.0.1",
    "93.184.216.34@10.0.0.1",
    "93.184.216.34:80@10.0.0.1",
    "1.2.3.4.5",
    "256.1.1.1",
    "0x100000000",
    "4294967296",
    "[::1",
    "[127.0.0.1]",
    "127.0.0.1 ",
    "127.0.0.1\t",
    "10.0.0.1\n",
    "10.0\u{a0}.0.1",
];

/// Addresses of names: one answer for each lookup; the last one repeats.
fn names() -> HashMap<&'static str, Vec<Vec<&'static str>>> {
    HashMap::from([
        ("localhost", vec![vec!["127.0.0.1", "::1"]]),
        ("private.test", vec![vec!["10.0.0.7"]]),
        ("metadata.test", vec![vec!["169.254.169.254"]]),
        ("mapped.test", vec![vec!["::ffff:10.0.0.7"]]),
        ("six.test", vec![vec!["fd00::7", "fe80::7"]]),
        ("empty.test", vec![vec![]]),
        ("public.test", vec![vec!["93.184.216.34"]]),
        // Public at registration, private from then on.
        ("rebinding.test", vec![vec!["93.184.216.34"], vec!["127.0.0.1"]]),
        ("rebinding-six.test", vec![vec!["2606:2800:220:1::1"], vec!["::1"]]),
        // Both kinds in one answer: refused at registration; an existing subscription uses the
        // public address.
        ("mixed.test", vec![vec!["10.0.0.7", "93.184.216.34", "::1"]]),
    ])
}

/// A resolver that returns these answers and counts lookups.
fn resolver(asked: Arc<AtomicUsize>) -> Lookup {
    let names = Arc::new(Mutex::new(names()));
    Arc::new(move |name| {
        asked.fetch_add(1, Ordering::SeqCst);
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let mut names = names.lock().unwrap();
        let found = names.get_mut(name.as_str()).map(|answers| match answers.len() {
            1 => answers[0].clone(),
            _ => answers.remove(0),
        });
        Box::pin(async move {
            let unknown = || std::io::Error::other("no such name");
            let parsed = found.ok_or_else(unknown)?.into_iter().map(|it| it.parse().unwrap());
            Ok(parsed.collect())
        })
    })
}

/// Addresses to which connections were made.
#[derive(Clone, Default)]
struct Wire(Arc<Mutex<Vec<IpAddr>>>);

impl Wire {
    /// Accepts connections on all addresses, and answers the request on each with `answer`.
    fn start(&self, answer: impl Fn(u16) -> String) -> u16 {
        let listener = TcpListener::bind("[::]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (seen, answer) = (Arc::clone(&self.0), answer(port));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let to = stream.local_addr().unwrap().ip().to_canonical();
                seen.lock().unwrap().push(to);
                let mut request = [0; 4096];
                let _ = stream.read(&mut request);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        port
    }

    fn seen(&self) -> Vec<IpAddr> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";

fn sender(lookup: Lookup, policy: Policy) -> Sender {
    let second = Duration::from_secs(2);
    Sender::new(policy, lookup, Timeouts { head: second, body: second, lookup: second })
}

async fn attempt(sender: &Sender, url: &str) -> Result<Option<u16>, String> {
    let endpoint: Endpoint = url.parse().map_err(|error| format!("{error}"))?;
    let attempted = sender.send(&endpoint, Format::Service, &[], Bytes::from_static(b"{}")).await;
    attempted.error.map_or(Ok(attempted.status), Err)
}

/// Runs in the network namespace, where every address leads to this process.
async fn inside() {
    let wire = Wire::default();
    let port = wire.start(|_| OK.to_owned());
    let asked = Arc::new(AtomicUsize::new(0));
    let sender = sender(resolver(Arc::clone(&asked)), Policy::default());
    let url = |host: &str, scheme: &str| format!("{scheme}://{host}:{port}/hook");

    // Checks that connections to any address arrive; otherwise the test would prove nothing.
    for host in ["93.184.216.34", "[2606:2800:220:1::1]", "public.test", "[64:ff9b::8.8.8.8]"] {
        assert_eq!(attempt(&sender, &url(host, "http")).await, Ok(Some(200)), "{host}");
    }
    let seen = wire.seen();
    assert_eq!(seen.len(), 4, "{seen:?}");
    for address in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00::1", "2002:7f00:1::"] {
        let address: IpAddr = address.parse().unwrap();
        std::net::TcpStream::connect(SocketAddr::new(address, port)).unwrap();
        wait_in_task("it arrives", || !wire.0.lock().unwrap().is_empty()).await;
        assert_eq!(wire.seen(), [address]);
    }

    assert!(HOSTILE.len() >= 90);
    let mut tried = 0;
    for host in HOSTILE {
        for scheme in ["http", "https"] {
            let url = url(host, scheme);
            if let Ok(endpoint) = url.parse::<Endpoint>() {
                tried += 1;
                let known = !host.starts_with("nowhere") && !host.starts_with("empty");
                assert_eq!(sender.check(&endpoint).await.is_err(), known, "{url}");
            }
            assert!(attempt(&sender, &url).await.is_err(), "{url}");
            assert_eq!(wire.seen(), Vec::<IpAddr>::new(), "{url}");
        }
    }
    println!("{} hosts, {tried} of their URLs are URLs", HOSTILE.len());

    // DNS rebinding: the name is accepted while it is public, and later attempts do not connect.
    for name in ["rebinding.test", "rebinding-six.test"] {
        let endpoint: Endpoint = url(name, "http").parse().unwrap();
        assert_eq!(sender.check(&endpoint).await, Ok(()), "{name} is public at first");
        let before = asked.load(Ordering::SeqCst);
        for _ in 0..3 {
            assert!(attempt(&sender, &url(name, "http")).await.unwrap_err().contains("not public"));
        }
        assert!(asked.load(Ordering::SeqCst) > before, "it is looked up for the connection");
        assert_eq!(wire.seen(), Vec::<IpAddr>::new());
    }
    let mixed: Endpoint = url("mixed.test", "http").parse().unwrap();
    assert!(sender.check(&mixed).await.is_err(), "any denied address is one too many");
    assert_eq!(attempt(&sender, &url("mixed.test", "http")).await, Ok(Some(200)));
    assert_eq!(wire.seen(), ["93.184.216.34".parse::<IpAddr>().unwrap()]);

    // Redirects are not followed.
    for (status, host) in [
        (301, "127.0.0.1"),
        (302, "10.0.0.1"),
        (303, "[::1]"),
        (307, "localhost"),
        (308, "private.test"),
    ] {
        let redirecting = Wire::default();
        let port = redirecting.start(|port| {
            format!(
                "HTTP/1.1 {status} X\r\nlocation: http://{host}:{port}/\r\ncontent-length: 0\r\n\
                 connection: close\r\n\r\n"
            )
        });
        let answer = attempt(&sender, &format!("http://93.184.216.34:{port}/")).await;
        assert_eq!(answer, Ok(Some(status)));
        assert_eq!(redirecting.seen(), ["93.184.216.34".parse::<IpAddr>().unwrap()]);
    }

    // Subnets that the operator allows, and nothing else.
    let allowed = ["10.0.0.0/24".parse().unwrap(), "::1/128".parse().unwrap()].to_vec();
    let lenient = self::sender(resolver(asked), Policy { allowed });
    for (host, ok) in [
        ("10.0.0.1", true),
        ("private.test", true),
        ("[::1]", true),
        ("[::ffff:10.0.0.1]", true),
        ("10.0.1.1", false),
        ("127.0.0.1", false),
        ("[64:ff9b::10.0.0.1]", false),
    ] {
        assert_eq!(attempt(&lenient, &url(host, "http")).await.is_ok(), ok, "{host}");
        assert_eq!(wire.seen().len(), usize::from(ok), "{host}");
    }
    println!("held inside");
}

#[test]
fn no_connection_is_made_to_an_address_that_is_not_public() {
    if std::env::var_os(INSIDE).is_some() {
        // The proxy variables name a proxy that would receive every request.
        return tokio::runtime::Runtime::new().unwrap().block_on(inside());
    }
    // The routes make all addresses local, except multicast and link-local addresses of IPv6.
    let script = "ip link set lo up && ip route add local 0.0.0.0/0 dev lo && \
                  ip -6 route add local ::/0 dev lo && exec \"$0\" \"$@\"";
    let with_network = |rest: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--net", "sh", "-c", script]).args(rest);
        command
    };
    if !with_network(&["true"]).output().is_ok_and(|tried| tried.status.success()) {
        eprintln!("skipped: no network of its own can be made here (unshare and ip of iproute2)");
        return;
    }
    let myself = std::env::current_exe().unwrap();
    let ended = with_network(&[myself.to_str().unwrap(), "--exact", TEST, "--nocapture"])
        .env(INSIDE, "1")
        .env("http_proxy", "http://10.9.9.9:3128")
        .env("https_proxy", "http://10.9.9.9:3128")
        .env("ALL_PROXY", "http://10.9.9.9:3128")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&ended.stdout);
    assert!(
        ended.status.success() && output.contains("held inside"),
        "{output}{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    print!("{output}");
}
