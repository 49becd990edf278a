//! Deletion of a subscription while an attempt is in flight: the attempt is aborted, and after the
//! deletion was answered nothing more reaches the receiver. Observed on the wire.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver as Told, channel};
use std::time::{Duration, Instant};

use orrery::webhooks::target::{Policy, Sender, Timeouts, system_lookup};
use serde_json::json;
use stellar_xdr::{Limits, ScBytes, ScVal, WriteXdr};

use super::hostile::Hostile;
use super::receiver::{Receiver, answer, read};
use super::schedule::Scene;
use super::service::{Owner, SETTINGS, busiest, directory, events_of, store};
use super::wire;
use super::world::owner;
use orrery_testkit::binary::Service;
use orrery_testkit::size;
use orrery_testkit::wait::{LIMIT, wait_until};

/// Size of an event's data in bytes: more than the buffers of a connection hold.
const BYTES: usize = 1 << 20;

/// Starts a receiver that hands its connections to the test and has a small receive buffer.
fn handing_over() -> (Hostile, Told<TcpStream>) {
    let (hand, handed) = channel();
    let receiver = Hostile::listening(with_small_buffers(), move |stream| {
        // The test may have ended.
        let _ = hand.send(stream);
    });
    (receiver, handed)
}

fn with_small_buffers() -> TcpListener {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _inside = runtime.enter();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let listener = socket.listen(16).unwrap().into_std().unwrap();
    listener.set_nonblocking(false).unwrap();
    listener
}

/// Reads until the peer closes the connection.
fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    match stream.read_to_end(&mut rest) {
        Ok(_) => rest,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => rest,
        Err(error) => panic!("the connection stays open: {error}"),
    }
}

fn sender() -> Sender {
    let policy = Policy { allowed: vec!["127.0.0.1/32".parse().unwrap()] };
    Sender::new(policy, system_lookup(), Timeouts::default())
}

/// The receiver has read the beginning, the rest fills all buffers on the way, and the sender
/// waits.
#[test]
fn deleting_a_subscription_aborts_a_partially_sent_request() {
    let (receiver, handed) = handing_over();
    let mut scene = Scene::sending(sender());
    let id = scene.subscribe(&format!("http://{}/", receiver.address));
    let bytes = ScVal::Bytes(ScBytes(vec![7; BYTES].try_into().unwrap()));
    scene.ledger_with_one_event_of(id, &bytes.to_xdr(Limits::none()).unwrap());
    scene.world.deliver_over_sockets(0);
    assert_eq!(scene.world.load().in_flight, 1);
    let mut stream = handed.recv_timeout(LIMIT).unwrap();
    let mut half = vec![0; 64 << 10];
    stream.read_exact(&mut half).unwrap();
    let port = receiver.address.port();
    let mut seen = (0, 0);
    let arrived = wait_until("the rest is on its way", || {
        // The receiver's buffer is full when the numbers no longer change.
        std::thread::sleep(Duration::from_millis(5));
        let (to_come, unread) = wire::bytes_to(port);
        let is_same = std::mem::replace(&mut seen, (to_come, unread)) == seen;
        if to_come > 4096 && unread > 0 && is_same { Ok(unread) } else { Err(seen) }
    });
    assert_eq!(scene.world.load().in_flight, 1, "it is being sent");

    scene.world.webhooks.delete(&owner("ana"), id).unwrap();
    let (to_come, _) = wire::bytes_to(port);
    assert_eq!(to_come, 0, "nothing is on its way any more");
    let after = rest(stream);
    // The receiver's system may have accepted a little more just before.
    let most = arrived + (64 << 10);
    assert!(after.len() as u64 <= most, "{} bytes came of {arrived} that had", after.len());
    assert!(half.len() + after.len() < BYTES, "it was half a request");
    assert_eq!(scene.world.settle().next, None);
    assert_eq!(receiver.count(), 1, "there is no other attempt");
}

/// An attempt that is aborted before it has begun ends like any other: it does not delay the
/// deletion, and its slot is free again.
#[test]
fn deleting_a_subscription_aborts_attempts_that_have_not_begun() {
    for _ in 0..size::choose(20, 500) {
        let mut scene = Scene::sending(sender());
        let endpoint = "https://example.com/";
        let doomed = scene.subscribe(endpoint);
        scene.ledgers_with_events(doomed);
        scene.world.deliver_to_nobody();
        let busy = scene.world.keep_runtime_busy();
        assert_eq!(scene.world.load().in_flight, 1);
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let world = &scene.world;
            let deleted = scope.spawn(|| world.webhooks.delete(&owner("ana"), doomed));
            // Not a wait with pauses: what is tested is the moment right after.
            while world.registry.get(doomed).is_some() {
                std::thread::yield_now();
            }
            // The deletion aborts the attempt now or shortly.
            std::thread::yield_now();
            drop(busy);
            deleted.join().unwrap().unwrap();
        });
        assert!(begun.elapsed() < Duration::from_secs(8), "the deletion waited in vain");
        assert_eq!(scene.world.load().in_flight, 0);
    }
}

/// With the built binary, and with all deliveries that a subscription can have in flight.
#[test]
fn a_slow_receiver_gets_nothing_after_the_deletion_was_confirmed() {
    let directory = directory();
    let service = Service::start_with(directory.path(), &SETTINGS);
    let ana = Owner::new(directory.path(), &service, "ana");
    store(directory.path(), 0..20);
    let contract = busiest(&ana);
    let before = events_of(&ana, &contract).len();
    let (receiver, handed) = handing_over();
    let kept = Receiver::start(|_| answer(200));
    let subscribe = |endpoint: String| {
        let new = json!({ "webhook_endpoint": endpoint, "contract_ids": [contract] });
        ana.post("webhooks/new", &new)["ids"][0].clone()
    };
    let id = subscribe(format!("http://{}/", receiver.address));
    subscribe(kept.url("/"));
    store(directory.path(), 20..40);
    let mut held = handed.recv_timeout(LIMIT).unwrap();
    let request = read(&mut held, &mut Vec::new()).unwrap();
    // Replays and tests have a class of their own in the queue.
    ana.post(&format!("webhooks/{id}/replay"), &json!({ "from": 2, "to": 15 }));
    let mut asked = handed.recv_timeout(LIMIT).unwrap();
    // Reads half of the request's head.
    asked.read_exact(&mut [0; 60]).unwrap();
    let port = receiver.address.port();
    wait_until("all that was sent has arrived", || wire::bytes_to(port).0 == 0);
    let (_, arrived) = wire::bytes_to(port);

    let (status, _) = ana.ask("DELETE", &format!("webhooks/{id}"), None);
    assert_eq!((status, wire::bytes_to(port).0), (200, 0), "nothing is on its way any more");
    // A response that arrives now is ignored.
    let _ = held.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let after = rest(held).len() + rest(asked).len();
    assert!(after as u64 <= arrived, "{after} bytes came of {arrived} that had");

    // The service goes on: new events are delivered, but not to this receiver.
    store(directory.path(), 40..60);
    let expected = events_of(&ana, &contract).len() - before;
    wait_until("others have everything", || kept.count() == expected);
    assert_eq!(receiver.count(), 2, "no connection was made since");
    assert!(handed.try_recv().is_err());
    assert!(kept.received().iter().any(|it| it.body == request.body));
    assert_eq!(ana.get("webhooks/list").as_array().unwrap().len(), 1);
}
