//! What all tokens of one owner have together: as much as one token, and another owner has its own.

use orrery::api::{ApiSettings, RateLimit};
use orrery::auth::IssueRequest;

use orrery_testkit::http::Connection;
use orrery_testkit::pubnet;
use orrery_testkit::server::{BudgetUsage, Server, TempStore};

/// Number of tokens of the owner that has many.
const TOKENS: usize = 8;
/// Number of requests that are sent at a time, more than any owner may have.
const SENT: usize = 20;

/// A budget that clients take parts of by requests that do not end.
struct Case {
    budget: &'static str,
    /// Number of parts that an owner may have.
    most: u64,
    adjust: fn(&mut ApiSettings),
    request: &'static str,
    /// Length of the body that is announced, and of the part of it that is sent.
    body: Option<(usize, usize)>,
    /// Size of a part.
    unit: u64,
}

const CASES: [Case; 3] = [
    Case {
        budget: "requests",
        most: 5,
        adjust: |settings| settings.requests_in_flight = 5,
        request: "POST /rest/retroshade/query",
        body: Some((100, 0)),
        unit: 1,
    },
    Case {
        budget: "uploads",
        most: 1,
        adjust: |_| {},
        request: "POST /rest/retroshade/deploy",
        body: Some((9 << 20, 0)),
        unit: 1,
    },
    Case {
        budget: "streams",
        most: 3,
        adjust: |settings| settings.streams_per_owner = 3,
        request: "GET /rest/events/stream",
        body: None,
        unit: 1,
    },
];

fn tokens(server: &Server, owner: &str, count: usize) -> Vec<String> {
    let issue = || server.tokens.issue(&IssueRequest::for_owner(owner)).unwrap().token;
    std::iter::repeat_with(issue).take(count).collect()
}

impl Case {
    /// Sends requests with these tokens in turn, and returns the connections.
    fn send(&self, server: &Server, tokens: &[String]) -> Vec<Connection> {
        let lines = self
            .body
            .map_or_else(String::new, |(announced, _)| format!("content-length: {announced}\r\n"));
        let sent = vec![b' '; self.body.map_or(0, |(_, sent)| sent)];
        let open = |number: usize| {
            let mut connection = server.connect();
            let (request, token) = (self.request, &tokens[number % tokens.len()]);
            let head = format!(
                "{request} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n{lines}\r\n"
            );
            // The server may have refused it and closed the connection already.
            let _ = connection.send(head.as_bytes()).and_then(|()| connection.send(&sent));
            connection
        };
        (0..SENT).map(open).collect()
    }

    /// Returns how many parts of the budget are taken by requests with these tokens, beside what
    /// is taken already.
    fn taken(
        &self,
        server: &Server,
        budgets: &BudgetUsage,
        tokens: &[String],
    ) -> (u64, Vec<Connection>) {
        let before = budgets.of(server, self.budget);
        let held = self.send(server, tokens);
        let usage = budgets.wait_for(server, self.budget, |usage| {
            let taken = usage.taken.saturating_sub(before.taken) / self.unit;
            taken + usage.refused_one - before.refused_one >= SENT as u64
        });
        (usage.taken.saturating_sub(before.taken) / self.unit, held)
    }
}

#[test]
fn eight_tokens_of_an_owner_take_what_one_takes() {
    for case in CASES {
        let store = TempStore::new(&pubnet::network());
        let budgets = BudgetUsage::default();
        let server = Server::start_with(&store, |deps| {
            (case.adjust)(&mut deps.settings);
            budgets.watch(deps);
        });
        let [one, many, other] = [("one", 1), ("many", TOKENS), ("other", 1)]
            .map(|(owner, count)| tokens(&server, owner, count));
        let name = case.budget;
        let (taken, held) = case.taken(&server, &budgets, &one);
        assert_eq!(taken, case.most, "{name}: one token");
        drop(held);
        budgets.wait_for(&server, name, |usage| usage.taken == 0);
        let (taken, held) = case.taken(&server, &budgets, &many);
        assert_eq!(taken, case.most, "{name}: {TOKENS} tokens");
        let (taken, _more) = case.taken(&server, &budgets, &other);
        assert_eq!(taken, case.most, "{name}: another owner");
        drop(held);
    }
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
