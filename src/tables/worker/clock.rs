//! Functions of the current time. DuckDB's own return times with a time zone, and arithmetic on those
//! is part of an extension that the service does not have. So macros of the same names take their
//! place, which return times in UTC without a time zone, as the columns of tables hold them.

/// Macros by name and parameters, each with its definition. They are defined in every connection that
/// prepares queries, in its temporary schema, which precedes DuckDB's.
const MACROS: [(&str, &str); 13] = [
    ("now()", NOW),
    ("get_current_timestamp()", NOW),
    ("current_timestamp()", NOW),
    ("transaction_timestamp()", NOW),
    ("current_localtimestamp()", NOW),
    ("localtimestamp()", NOW),
    ("today()", TODAY),
    ("current_date()", TODAY),
    ("get_current_time()", TIME),
    ("current_time()", TIME),
    ("current_localtime()", TIME),
    ("localtime()", TIME),
    ("timezone(zone, time)", IN_ZONE),
];

const NOW: &str = "system.main.now()::TIMESTAMP";
const TODAY: &str = "system.main.now()::TIMESTAMP::DATE";
const TIME: &str = "system.main.now()::TIMESTAMP::TIME";
/// `time AT TIME ZONE zone`. Without the extension, no other zone is known.
const IN_ZONE: &str = "CASE WHEN upper(zone) IN ('UTC', 'GMT', 'Z', 'ETC/UTC', 'ETC/GMT', 'UCT') \
    THEN time::TIMESTAMP \
    ELSE error('Times are UTC here, and no other time zone is known: add or subtract an INTERVAL') END";

/// Returns the statements that define the macros.
pub fn definitions() -> String {
    let define = |(name, body): (&str, &str)| format!("CREATE TEMP MACRO {name} AS {body};");
    MACROS.map(define).concat()
}

/// Whether a macro has this name.
pub fn defines(name: &str) -> bool {
    let names = MACROS.iter().filter_map(|(name, _)| name.split('(').next());
    names.into_iter().any(|own| own == name)
}
