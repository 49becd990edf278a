use orrery_ledger::domain::LedgerSeq;
use orrery_net::http::{HttpError, Timeouts};
use orrery_net::reqwest;

use super::call::{CallError, CallInfo};
use super::*;

#[test]
fn errors_of_stellar_rpc_are_parsed() {
    let start = "start ledger (12) must be between the oldest ledger: 100 and the latest ledger: \
                 2024 for this rpc instance";
    assert_eq!(window_of(start), Some((LedgerSeq(100), LedgerSeq(2024))));
    let cursor =
        "cursor ('2024') must be between the oldest ledger: 1 and the latest ledger: 2024 for";
    assert_eq!(window_of(cursor), Some((LedgerSeq(1), LedgerSeq(2024))));
    assert_eq!(limit_of("limit must not exceed 200\nanother reason"), Some(200));
    for other in ["", "oldest ledger: ", "oldest ledger: x and the latest ledger: 5", "limit must"]
    {
        assert_eq!((window_of(other), limit_of(other)), (None, None), "{other}");
    }
    assert_eq!(limit_of("limit must not exceed 99999999999"), None);
}

#[test]
fn failures_that_a_smaller_page_may_avoid_are_recognised() {
    let status = |code: u16, seconds: Option<u64>| CallError::Status {
        call: CallInfo::for_tests(),
        status: reqwest::StatusCode::from_u16(code).unwrap(),
        retry_after: seconds.map(Duration::from_secs),
    };
    for (code, smaller) in [
        (401, false),
        (403, false),
        (404, false),
        (413, true),
        (429, false),
        (500, false),
        (502, false),
        (503, true),
        (504, true),
        (599, false),
    ] {
        let error = status(code, None);
        assert_eq!(error.may_succeed_with_less(), smaller, "{error}");
        let message = error.to_string();
        let begin = format!("the RPC server http://t answers getLedgers with HTTP {code}: ");
        assert!(message.starts_with(&begin) && message.len() > begin.len() + 8, "{message}");
        assert!(matches!(error.into(), SourceError::Retryable(reason) if reason == message));
    }
    for (failure, smaller) in [
        (HttpError::TimedOut, true),
        (HttpError::TooLong(5), true),
        (HttpError::Broken("it ends early".to_owned()), true),
        (HttpError::NoConnection("Connection refused".to_owned()), false),
    ] {
        let error = CallError::Http { call: CallInfo::for_tests(), failure };
        assert_eq!(error.may_succeed_with_less(), smaller, "{error}");
    }
    for (code, smaller) in [(-32001, true), (-32603, false), (-32600, false), (-32601, false)] {
        let message = "it says why".to_owned();
        let error = CallError::Refused { call: CallInfo::for_tests(), code, message };
        assert_eq!(error.may_succeed_with_less(), smaller, "{error}");
    }
    let asks = SourceError::from(status(503, Some(30)));
    assert!(matches!(asks, SourceError::RetryAfter { delay, .. } if delay.as_secs() == 30));
}

#[test]
fn settings_are_as_documented() {
    let settings = RpcSettings::new("https://rpc.example");
    assert_eq!(settings.most_ledgers, 200);
    assert_eq!(settings.most_bytes, 128 << 20);
    assert_eq!(settings.poll, Duration::from_secs(1));
    assert_eq!(settings.timeouts, Timeouts::default());
    let source = RpcSource::new(&RpcSettings { most_bytes: 1, ..settings }).unwrap();
    assert_eq!(source.most_bytes, LEAST_ANSWER_BYTES);
    assert_eq!(source.name(), "the RPC server https://rpc.example");
}
