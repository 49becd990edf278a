//! What all tokens of one owner have together: as much as one token, and another owner has its own.

use orrery::api::RateLimit;
use orrery::auth::IssueRequest;

use orrery_testkit::pubnet;
use orrery_testkit::server::{Server, TempStore};

/// Number of tokens of the owner that has many.
const TOKENS: usize = 8;

fn tokens(server: &Server, owner: &str, count: usize) -> Vec<String> {
    let issue = || server.tokens.issue(&IssueRequest::for_owner(owner)).unwrap().token;
    std::iter::repeat_with(issue).take(count).collect()
}

#[test]
fn eight_tokens_of_an_owner_have_the_rate_of_one() {
    const BURST: u32 = 10;
    let store = TempStore::new(&pubnet::network());
    let server = Server::start_with(&store, |deps| {
        deps.settings.rate_limit = RateLimit::from_setting(1, BURST);
    });
    let answered = |tokens: &[String]| {
        let sent = (0..3 * TOKENS).map(|number| &tokens[number % tokens.len()]);
        sent.filter(|token| server.get_with("/rest/events/by-ledger", token).status == 200).count()
    };
    // Requests that take long gain another one per second.
    for (owner, count) in [("one", 1), ("many", TOKENS), ("other", 1)] {
        let (begun, answered) =
            (std::time::Instant::now(), answered(&tokens(&server, owner, count)));
        let most = BURST as usize + begun.elapsed().as_secs() as usize + 1;
        assert!((BURST as usize..=most).contains(&answered), "{owner}: {answered}");
    }
}
