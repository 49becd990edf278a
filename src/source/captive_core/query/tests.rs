use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use serde_json::{Value, json};
use stellar_xdr::{
    AccountId, ContractCodeEntry, ContractCodeEntryExt, ContractDataDurability, ContractDataEntry,
    ContractId, ExtensionPoint, Hash, LedgerEntry, LedgerEntryData, LedgerEntryExt,
    LedgerKeyAccount, PublicKey, ScAddress, ScVal, TtlEntry, Uint256,
};

use super::*;

/// Head and body of a request.
type Question = (String, String);

/// Starts a server that answers one request after the other with the status line and body that
/// `script` returns. Without an answer, the connection stays open.
fn server(
    script: impl Fn(&Question) -> Option<(&'static str, String)> + Send + 'static,
) -> (u16, Arc<Mutex<Vec<Question>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let questions = Arc::<Mutex<Vec<Question>>>::default();
    let noted = Arc::clone(&questions);
    thread::spawn(move || {
        // Connections that stay open until the end of the test.
        let mut silent = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let question = read(&stream);
            let answer = script(&question);
            noted.lock().push(question);
            match answer {
                None => silent.push(stream),
                Some((status, body)) => {
                    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}", body.len());
                    // The client may have disconnected.
                    let _ = stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes());
                }
            }
        }
    });
    (port, questions)
}

fn read(stream: &TcpStream) -> Question {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.expect("core knows it by this name only").parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap())
}

fn timeouts() -> Timeouts {
    Timeouts { idle: Duration::from_millis(200), ..Timeouts::default() }
}

fn entry(data: LedgerEntryData) -> LedgerEntry {
    LedgerEntry { last_modified_ledger_seq: 7, data, ext: LedgerEntryExt::V0 }
}

fn code(byte: u8) -> LedgerEntry {
    let ext = ContractCodeEntryExt::V0;
    let code = vec![byte; 3].try_into().unwrap();
    entry(LedgerEntryData::ContractCode(ContractCodeEntry { ext, hash: Hash([byte; 32]), code }))
}

fn data(byte: u8, durability: ContractDataDurability) -> LedgerEntry {
    entry(LedgerEntryData::ContractData(ContractDataEntry {
        ext: ExtensionPoint::V0,
        contract: ScAddress::Contract(ContractId(Hash([byte; 32]))),
        key: ScVal::U32(1),
        durability,
        val: ScVal::U32(2),
    }))
}

fn account(byte: u8) -> LedgerKey {
    let account_id = AccountId(PublicKey::PublicKeyTypeEd25519(Uint256([byte; 32])));
    LedgerKey::Account(LedgerKeyAccount { account_id })
}

fn time(of: &LedgerEntry, until: u32) -> LedgerEntry {
    let Some(LedgerKey::Ttl(key)) = answers::ttl_of(&of.to_key()) else { panic!("{of:?}") };
    entry(LedgerEntryData::Ttl(TtlEntry { key_hash: key.key_hash, live_until_ledger_seq: until }))
}

fn base64(value: &impl WriteXdr) -> String {
    value.to_xdr_base64(Limits::none()).unwrap()
}

fn decoded(body: &str) -> Vec<String> {
    let pairs = body.split('&').map(|pair| pair.strip_prefix("key=").unwrap());
    let decode =
        |key| percent_encoding::percent_decode_str(key).decode_utf8().unwrap().into_owned();
    pairs.map(decode).collect()
}

/// Ledger of an answer, and its entries with their times to live.
type Found = (LedgerSeq, Vec<Option<(LedgerEntry, Option<u32>)>>);

async fn ask(reach: Reach, keys: &[LedgerKey]) -> Result<Found, String> {
    let port = QueryPort::default();
    let _asked = port.publish(reach, 0);
    let core = CoreEntries::new(port, timeouts()).unwrap();
    let held = core.look_up(keys).await?;
    let entries = held.entries.into_iter();
    Ok((held.as_of, entries.map(|one| one.map(|one| (one.entry, one.live_until))).collect()))
}

fn answers_with(answer: Value) -> u16 {
    server(move |_| Some(("200 OK", answer.to_string()))).0
}

#[tokio::test]
async fn newer_cores_return_entries_with_their_ttl() {
    let (live, archived) = (code(0xfb), data(2, ContractDataDurability::Persistent));
    let answer = json!({ "ledgerSeq": 90, "entries": [
        { "state": "live", "entry": base64(&live), "liveUntilLedgerSeq": 95 },
        { "state": "archived", "entry": base64(&archived), "liveUntilLedgerSeq": 0 },
        { "state": "not-found" },
    ] });
    let (port, questions) = server(move |_| Some(("200 OK", answer.to_string())));
    let keys = [live.to_key(), archived.to_key(), account(3)];
    let found = ask(Reach::of(port, 23), &keys).await.unwrap();
    let expected = vec![Some((live, Some(95))), Some((archived, Some(0))), None];
    assert_eq!(found, (LedgerSeq(90), expected));
    let questions = questions.lock();
    let [(head, body)] = &questions[..] else { panic!("{questions:?}") };
    assert!(head.starts_with("POST /getledgerentry HTTP/1.1\r\n"), "{head}");
    assert!(!body.contains(['+', '/']), "{body}");
    assert_eq!(decoded(body), keys.each_ref().map(base64));
}

#[tokio::test]
async fn older_cores_are_asked_for_ttl_entries_as_well() {
    let (live, ended) = (code(1), data(2, ContractDataDurability::Persistent));
    let gone = data(3, ContractDataDurability::Temporary);
    let there = [&time(&live, 90), &gone, &time(&ended, 89), &ended, &live, &time(&gone, 89)];
    for (number, name) in [("ledgerSeq", "entry"), ("ledger", "le")] {
        let items = there.map(|entry| json!({ name: base64(entry) }));
        let answer = json!({ number: 90, "entries": items });
        let (port, questions) = server(move |_| Some(("200 OK", answer.to_string())));
        let keys = [live.to_key(), ended.to_key(), gone.to_key(), account(3)];
        let found = ask(Reach::of(port, 22), &keys).await.unwrap();
        let expected =
            vec![Some((live.clone(), Some(90))), Some((ended.clone(), Some(0))), None, None];
        assert_eq!(found, (LedgerSeq(90), expected));
        let (head, body) = questions.lock()[0].clone();
        assert!(head.starts_with("POST /getledgerentryraw HTTP/1.1\r\n"), "{head}");
        let times = [&live, &ended, &gone].map(|entry| time(entry, 0).to_key());
        let asked: Vec<_> = keys.iter().chain(&times).map(base64).collect();
        assert_eq!(decoded(&body), asked);
    }
    let port = answers_with(json!({ "ledgerSeq": 90, "entries": null }));
    assert_eq!(ask(Reach::of(port, 22), &[account(1)]).await, Ok((LedgerSeq(90), vec![None])));
}

#[tokio::test]
async fn implausible_responses_are_refused() {
    let (wanted, other) = (code(1), code(2));
    let live = |entry: &str| json!({ "state": "live", "entry": entry, "liveUntilLedgerSeq": 9 });
    for (protocol, items, sentence) in [
        (23, json!([]), "0 entries for 1 keys"),
        (23, json!([live(&base64(&other))]), "another entry than was asked for"),
        (23, json!([live("%")]), "an entry that is not XDR"),
        (23, json!([live("AAAA")]), "an entry that is not XDR"),
        (
            23,
            json!([{ "state": "live", "liveUntilLedgerSeq": 9 }]),
            "no entry where there should be",
        ),
        (23, json!([{ "state": "live", "entry": base64(&wanted) }]), "without its time to live"),
        (23, json!([{ "state": "evicted", "entry": base64(&wanted) }]), "in the state evicted"),
        (23, json!([{ "entry": base64(&wanted) }]), "in the state none"),
        (23, json!("x"), "something of another form"),
        (22, json!([{ "entry": base64(&wanted) }]), "without its time to live"),
        (22, json!([{ "entry": base64(&other) }]), "another entry than was asked for"),
        (22, json!([{ "entry": "AAAA" }]), "an entry that is not XDR"),
    ] {
        let port = answers_with(json!({ "ledgerSeq": 5, "entries": items }));
        let error = ask(Reach::of(port, protocol), &[wanted.to_key()]).await.unwrap_err();
        assert!(error.contains(sentence) && error.contains("stellar-core answers"), "{error}");
    }
}

#[tokio::test]
async fn a_core_that_cannot_be_queried_is_an_error() {
    let keys = [account(1)];
    let (booting, _) =
        server(|_| Some(("404 Not Found", "\n{\"error\": \"booting\"}\n".to_owned())));
    let (broken, _) = server(|_| Some(("503 Service Unavailable", String::new())));
    let (silent, _) = server(|_| None);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for (reach, sentence) in [
        (Reach::of(booting, 26), "with HTTP 404: {\"error\": \"booting\"}"),
        (Reach::of(broken, 26), "with HTTP 503"),
        (Reach::of(silent, 26), "no answer in time"),
        (Reach::of(nobody, 26), "no connection: "),
        (Reach::of(0, 26), "remove HTTP_QUERY_PORT"),
        (Reach::of(0, 21), "a stellar-core of protocol 21 cannot be asked"),
        (Reach::NotRunning, "does not run"),
    ] {
        let error = ask(reach, &keys).await.unwrap_err();
        assert!(error.contains(sentence), "{error}");
    }
}

#[tokio::test]
async fn responses_older_than_the_stream_are_retried() {
    let closed = Mutex::new(40);
    let (port, questions) = server(move |_| {
        let mut closed = closed.lock();
        *closed += 1;
        Some((
            "200 OK",
            json!({ "ledgerSeq": *closed, "entries": [{ "state": "not-found" }] }).to_string(),
        ))
    });
    let query = QueryPort::default();
    let open = query.publish(Reach::of(port, 26), 0);
    query.streamed(LedgerSeq(43));
    query.streamed(LedgerSeq(42));
    let core = CoreEntries::new(query.clone(), timeouts()).unwrap();
    assert_eq!(core.look_up(&[account(1)]).await.unwrap().as_of, LedgerSeq(43));
    assert_eq!(questions.lock().len(), 3);
    // The client fails without a core, and the next core has streamed nothing yet.
    drop(open);
    let error = core.look_up(&[account(1)]).await.unwrap_err();
    assert!(
        error.contains("stellar-core that is asked for ledger entries does not run"),
        "{error}"
    );
    let _open = query.publish(Reach::of(port, 26), 0);
    assert_eq!(core.look_up(&[account(1)]).await.unwrap().as_of, LedgerSeq(44));
}
