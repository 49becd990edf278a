//! Random queries find the rows of files and memory as DuckDB finds those of a plain table.

use orrery_tables::query::QueryRequest;
use orrery_testkit::histories;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use super::scene::{NAMES, Row, Scene, StandIn, closed, random_rows, written};

/// A plain table of DuckDB with the same rows: the second implementation.
struct Plain(duckdb::Connection);

impl Plain {
    fn new(rows: &[Row]) -> Self {
        let connection = duckdb::Connection::open_in_memory().unwrap();
        connection
            .execute_batch(
                "create schema chain; create table chain.events (id bigint, contract_id varchar, ledger bigint,
                 ledger_closed_at timestamp, ok boolean, topics varchar[], name varchar)",
            )
            .unwrap();
        let text = |text: &Option<String>| match text {
            Some(text) => format!("'{}'", text.replace('\'', "''")),
            None => "null".to_owned(),
        };
        for rows in rows.chunks(500) {
            let row = |row: &Row| {
                let topics: Vec<_> = row.topics.iter().map(|topic| format!("'{topic}'")).collect();
                format!(
                    "({}, {}, {}, make_timestamp({}), {}, [{}]::varchar[], {})",
                    row.id,
                    text(&row.contract),
                    row.ledger,
                    closed(row.ledger),
                    row.ok,
                    topics.join(", "),
                    text(&row.name)
                )
            };
            let rows: Vec<_> = rows.iter().map(row).collect();
            let insert = format!("insert into chain.events values {}", rows.join(", "));
            connection.execute_batch(&insert).unwrap();
        }
        Self(connection)
    }

    fn answer(&self, sql: &str) -> String {
        self.0.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }
}

/// Returns a query for all rows of another one as a text.
fn as_text(sql: &str) -> String {
    format!(
        "select coalesce(string_agg(r, ' ' order by r), '') || '#' as t from (select x::varchar as r from ({sql}) x)"
    )
}

fn random_condition(random: &mut ChaCha8Rng, depth: u32, last: u32) -> String {
    let of = ["=", "<>", "<", "<=", ">", ">="];
    let how = of[random.random_range(0..of.len())];
    let ledger = random.random_range(0..last + 5);
    let name = NAMES[random.random_range(0..NAMES.len())].replace('\'', "''");
    match random.random_range(0..if depth == 0 { 9 } else { 12 }) {
        0 => format!("ledger {how} {ledger}"),
        1 => format!("{ledger} {how} ledger"),
        2 => format!("ledger between {ledger} and {}", ledger + random.random_range(0..9)),
        3 => format!("contract_id {how} 'C{}'", random.random_range(0..5)),
        4 => format!("name in ('{name}', 'mint')"),
        5 => ["ok", "not ok", "name is null", "contract_id is not null"][random.random_range(0..4)]
            .into(),
        6 => {
            let time = format!("make_timestamp({})", closed(ledger.into()));
            let text = format!("timestamp '{}'", written(closed(ledger.into())));
            format!("ledger_closed_at {how} {}", if random.random() { time } else { text })
        }
        7 => format!("id % {} = 1", random.random_range(2..5)),
        8 => format!("name {how} '{name}'"),
        kind => {
            let parts: Vec<_> = (0..random.random_range(1..4))
                .map(|_| random_condition(random, depth - 1, last))
                .collect();
            let join = if kind == 9 { " and " } else { " or " };
            format!("({})", parts.join(join))
        }
    }
}

fn random_query(random: &mut ChaCha8Rng, last: u32) -> String {
    let condition = random_condition(random, 2, last);
    let other = random_condition(random, 1, last);
    let limit = random.random_range(0..20);
    let offset = random.random_range(0..4);
    let direction = ["", " desc"][random.random_range(0..2)];
    let filter = [String::new(), format!(" where {condition}")][random.random_range(0..2)].clone();
    match random.random_range(0..10) {
        0 => "select count(*) as n, count(name) as m, min(ledger) as a, max(ledger_closed_at) as b from chain.events".to_owned(),
        1 => format!("select count(*) as n from chain.events{filter}"),
        2 => format!("select * from chain.events where {condition}"),
        3 => format!("select name, topics from chain.events where {condition}"),
        4 => format!(
            "select * from chain.events{filter} order by ledger{direction}, id{direction} limit {limit} offset {offset}"
        ),
        5 => format!(
            "select id, n from (select id, name as n, ledger as l from chain.events) where {} order by l{direction}, id limit {limit}",
            format!("({condition})").replace("name", "n").replace("ledger_closed_at", "make_timestamp(0)").replace("ledger", "l")
                .replace("contract_id", "n").replace("not ok", "l > 3").replace("ok", "l > 4")
        ),
        6 => format!(
            "select a.id, b.id as other from chain.events a join chain.events b on a.ledger = b.ledger and a.id < b.id where a.{}",
            if random.random_bool(0.5) { "ok" } else { "name = 'mint'" }
        ),
        7 => format!(
            "select contract_id, count(*) as n from chain.events{filter} group by 1 union all select name, count(*) from chain.events where {other} group by 1"
        ),
        8 => format!(
            "with x as (select * from chain.events where {condition}) select count(*) as n from x where ledger in (select ledger from x where {other})"
        ),
        _ => format!("select distinct name from chain.events{filter}"),
    }
}

/// Small: 6 histories; full: 200.
#[test]
fn rows_of_files_and_memory_are_those_of_one_table() {
    histories::run(6, 200, |seed| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let scene = Scene::new();
        let owner = scene.owner("ana");
        let last = random.random_range(10..120);
        let (mut files, mut held, mut all) = (Vec::new(), Vec::new(), Vec::new());
        let (mut rows, mut number) = (Vec::new(), 0);
        for ledger in 2..=last {
            rows.extend(random_rows(&mut random, ledger));
            if !random.random_bool(0.2) && ledger < last {
                continue;
            }
            number += 1;
            match random.random_range(0..3) {
                0 if !rows.is_empty() => held.push(StandIn::held(&rows)),
                kind if !rows.is_empty() => {
                    let older = kind == 1 && random.random_bool(0.5);
                    if older {
                        rows.iter_mut().for_each(|row: &mut Row| row.name = None);
                    }
                    files.push(scene.chain.write(&format!("{number}.parquet"), &rows, older));
                }
                _ => {}
            }
            all.append(&mut rows);
        }
        scene.chain.change(|state| (state.files, state.rows) = (files, held));
        let plain = Plain::new(&all);
        for _ in 0..40 {
            let sql = random_query(&mut random, last);
            let expected = plain.answer(&as_text(&sql));
            let found = scene.world.rows(&owner, &as_text(&sql));
            assert_eq!(found[0]["t"], expected, "seed {seed}: {sql}");
        }
        // Values of parameters are compared as those in the text.
        let sql =
            "select count(*) as n from chain.events where ledger >= ? and name = ? and ok = ?";
        let params = vec![json!(last / 2), json!("mint"), json!(true)];
        let request = QueryRequest { query: sql.to_owned(), params, ..QueryRequest::default() };
        let found = scene.world.tables.query(&owner, request).unwrap();
        let sql = format!(
            "select count(*)::varchar from chain.events where ledger >= {} and name = 'mint' and ok",
            last / 2
        );
        let expected = format!("[{{\"n\":{}}}]", plain.answer(&sql));
        assert_eq!(String::from_utf8(found.bytes).unwrap(), expected);
    });
}
