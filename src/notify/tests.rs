use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orrery_testkit::wait::wait_in_task;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// A received request: path and JSON body.
type Received = (String, Value);

/// A server that receives messages and sends these answers in turn; the last one repeats.
struct Receiver {
    base: String,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    async fn start(answers: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let kept = Arc::clone(&received);
        tokio::spawn(async move {
            for number in 0.. {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read(&mut stream).await;
                kept.lock().push(request);
                let answer = answers[number.min(answers.len() - 1)];
                let answer =
                    format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Self { base, received }
    }

    /// Waits until `count` requests have been received.
    async fn arrived(&self, count: usize) -> Vec<Received> {
        wait_in_task("the requests are received", || self.received.lock().len() >= count).await;
        self.received.lock().clone()
    }
}

async fn read(stream: &mut tokio::net::TcpStream) -> Received {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.unwrap().trim().parse().unwrap() {
                assert!(head.contains("content-type: application/json"), "{head}");
                let path = text.split(' ').nth(1).unwrap().to_owned();
                assert!(text.starts_with("POST "), "{text}");
                return (path, serde_json::from_str(body).unwrap());
            }
        }
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).await.unwrap();
        assert!(count > 0, "the request is whole");
        bytes.extend_from_slice(&piece[..count]);
    }
}

fn down() -> Message {
    Message {
        kind: Kind::Down,
        network: "testnet".to_owned(),
        text: "Orrery (testnet) is down: source: <@everyone> & co".to_owned(),
        time: 1_790_000_000,
        reason: Some("source: <@everyone> & co".to_owned()),
        lag: Some(Lag { ledger: 990, network_latest: 1000, seconds: None }),
    }
}

#[tokio::test]
async fn each_service_gets_its_message_format() {
    let receiver = Receiver::start(&["204 No Content"]).await;
    let at = |path: &str| format!("{}{path}", receiver.base);
    let client = http::client(Timeouts::default()).unwrap();
    for target in [
        Target::discord(&at("/api/webhooks/1/secret")).unwrap(),
        Target::slack(&at("/services/T/B/secret")).unwrap(),
        Target::telegram_at(&receiver.base, "123456:AAsecret:-1001234").unwrap(),
        Target::generic(&at("/hook?key=secret")).unwrap(),
    ] {
        target.send(&client, &down()).await.unwrap();
    }
    let received = receiver.arrived(4).await;
    let text = down().text;
    assert_eq!(
        received[0],
        (
            "/api/webhooks/1/secret".to_owned(),
            json!({
                "content": "Orrery \\(testnet\\) is down\\: source\\: \\<\\@everyone\\> \\& co",
                "allowed_mentions": {"parse": []},
                "flags": 4,
            })
        )
    );
    let block = &received[1].1["blocks"][0]["text"];
    assert_eq!(*block, json!({"type": "plain_text", "text": text, "emoji": false}));
    assert_eq!(received[2].0, "/bot123456:AAsecret/sendMessage?chat_id=-1001234");
    let said = received[2].1["text"].as_str().unwrap().replace('\u{2060}', "");
    assert_eq!(said, "Orrery (testnet) is down: source: &lt;@everyone&gt; &amp; co");
    assert_eq!(received[3].0, "/hook?key=secret");
    assert_eq!(
        received[3].1,
        json!({
            "status": "down",
            "network": "testnet",
            "text": text,
            "time": 1_790_000_000,
            "reason": "source: <@everyone> & co",
            "service_latest_ledger": 990,
            "network_latest_ledger": 1000,
        })
    );
}

#[tokio::test]
async fn transient_failures_are_retried() {
    let receiver = Receiver::start(&["503 Busy", "429 Slow\r\nretry-after: 1", "200 OK"]).await;
    let client = http::client(Timeouts::default()).unwrap();
    let target = Target::slack(&receiver.base).unwrap();
    tokio::time::pause();
    let start = Instant::now();
    let sent = tokio::spawn(async move { post(&target, &client, &down()).await });
    assert_eq!(receiver.arrived_virtually(3).await.len(), 3);
    sent.await.unwrap().unwrap();
    let waited: Duration = RETRY_DELAYS[..2].iter().sum();
    assert!(start.elapsed() >= waited, "{:?}", start.elapsed());
}

#[tokio::test]
async fn refusals_are_final_and_reveal_no_secret() {
    let receiver = Receiver::start(&["404 Not Found"]).await;
    let client = http::client(Timeouts::default()).unwrap();
    let target = Target::discord(&format!("{}/api/webhooks/1/secret", receiver.base)).unwrap();
    let error = post(&target, &client, &down()).await.unwrap_err();
    assert_eq!(error.to_string(), "it answered with status 404");
    assert_eq!(receiver.received.lock().len(), 1);

    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let target = Target::discord(&format!("http://{nobody}/api/webhooks/1/secret")).unwrap();
    let error = format!("{:?}", target.send(&client, &down()).await.unwrap_err());
    assert!(!error.contains("secret"), "{error}");
    for (wrong, target) in
        [("secret", Target::telegram("secret")), ("ftp://secret", Target::generic("ftp://secret"))]
    {
        let error = target.err().unwrap().to_string();
        assert!(!error.contains(wrong), "{error}");
    }
}

/// A channel that does not answer delays neither the others nor the service.
#[tokio::test]
async fn an_unresponsive_channel_delays_no_other() {
    let dead = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead = Target::slack(&format!("http://{}", dead.local_addr().unwrap())).unwrap();
    let receiver = Receiver::start(&["200 OK"]).await;
    let alive = Target::generic(&receiver.base).unwrap();
    let broken = Arc::new(AtomicBool::new(false));
    let observe = {
        let broken = Arc::clone(&broken);
        Arc::new(move || Observation {
            network: "testnet".to_owned(),
            down: broken.load(Ordering::Relaxed).then(|| "source: it fails".to_owned()),
            ..Observation::default()
        })
    };
    tokio::time::pause();
    let (stop, stopping) = watch::channel(false);
    let running = tokio::spawn(run(vec![dead, alive], observe, stopping));
    let first = receiver.arrived_virtually(1).await;
    assert_eq!(first[0].1["status"], "up");
    broken.store(true, Ordering::Relaxed);
    let both = receiver.arrived_virtually(2).await;
    assert_eq!(
        (&both[1].1["status"], &both[1].1["reason"]),
        (&json!("down"), &json!("source: it fails"))
    );
    stop.send(true).unwrap();
    running.await.unwrap().unwrap();
}

impl Receiver {
    /// Like `arrived`, on a paused clock: time advances in small steps, with real pauses for the
    /// sockets.
    async fn arrived_virtually(&self, count: usize) -> Vec<Received> {
        for _ in 0..20_000 {
            if self.received.lock().len() >= count {
                break;
            }
            tokio::time::advance(Duration::from_millis(50)).await;
            tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(1)))
                .await
                .unwrap();
        }
        self.received.lock().clone()
    }
}
