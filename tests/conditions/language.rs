//! The language: what is read, what is refused, where and with which words, and its limits.

use orrery_conditions::{Condition, Fields, Name, Value};

struct Nothing;

impl Fields for Nothing {
    fn field(&self, _: &Name) -> Option<Value<'_>> {
        None
    }
}

fn holds(text: &str) -> bool {
    Condition::parse(text).unwrap_or_else(|problem| panic!("{text}: {problem}")).holds(&Nothing)
}

#[test]
fn operators_hold_together_as_in_sql() {
    for text in [
        "1 + 2 * 3 = 7",
        "(1 + 2) * 3 = 9",
        "10 - 2 - 3 = 5",
        "- 2 * - 3 = 6",
        "2 - - 3 = 5",
        "not 1 = 2",
        "not not true",
        "not false and true",
        "true or false and false",
        "not (true and false)",
        "false or not false",
        "(null = 1) is null",
        "(1 = 1) = (2 = 2)",
        "1 in (3, 2, 1)",
        "1 not in (3, 2)",
        "not 1 in (2)",
        "'it''s' = 'it''s'",
        "'a' < 'b' and 'B' < 'a' and 'z' < 'ä'",
        "'abc' like 'a%' and 'abc' not like 'b%'",
        "lower('ÄÖÜ ΑΣ') = 'äöü ας' or lower('ΑΣ') = 'ασ'",
        "abs(- 5) = 5",
        "true > false",
        "NULL IS NULL and TRUE IS NOT NULL",
        "1=1 AND 2>=2 And 3<=3 aNd 4!=5",
        "null or true",
        "not (null and false)",
        "115792089237316195423570985008687907853269984665640564039457584007913129639935 * 2 > 1",
    ] {
        assert!(holds(text), "{text}");
    }
    for text in [
        "null",
        "not null",
        "null = null",
        "null and true",
        "null or false",
        "1 in (2, null)",
        "1 not in (2, null)",
        "null in (1)",
        "null like '%'",
        "abs(null) = 0",
        "amount = 1",
        "amount is null",
        "not amount = 1",
        "true or amount = 1",
    ] {
        assert!(!holds(text), "{text}");
    }
}

#[test]
fn what_is_refused_is_named_with_its_place_and_what_is_meant() {
    for (text, position, what) in [
        ("", 1, "the end was found, and a name, a number"),
        ("a == 1", 3, "'==' is not known: write '='"),
        ("a <> 1", 3, "'<>' is not known: write '!='"),
        ("a / 2 = 1", 3, "'/' is not known: there is no division"),
        ("a || 'x' = 'y'", 3, "'||' is not known: write 'or'"),
        ("a = 1 && b = 2", 7, "'&&' is not known: write 'and'"),
        ("a between 1 and 2", 3, "'between' is not known: write 'x >= 1 and x <= 2'"),
        ("a is true", 6, "'true' behind 'is' is not known: write the name alone"),
        ("a is 5", 6, "write 'is null'"),
        ("a ilike 'x'", 3, "lower(x) like"),
        ("a::int = 1", 2, "there are no casts"),
        ("a = 1 -- yes", 7, "there are no comments"),
        ("a = 1.5", 6, "numbers are whole"),
        ("a = 1e5", 5, "write whole numbers"),
        ("a = 0x10", 5, "write whole numbers"),
        ("a = b = c", 7, "put one of the two in parentheses"),
        ("a = 1 is null", 7, "put one of the two in parentheses"),
        ("a = not b", 5, "in parentheses"),
        ("upper(a) = 'X'", 1, "there is no function 'upper': there are abs and lower"),
        ("a = 'x", 5, "a ' is not closed"),
        ("(a = 1", 7, "the end was found, and an operator or ')'"),
        ("a = 1)", 6, "a ')' has no '('"),
        ("a = 1 b", 7, "'b' was found"),
        ("a = 1 and", 10, "the end was found"),
        ("a in 1", 6, "'1' was found, and '('"),
        ("a in ()", 7, "')' was found"),
        ("ä = 'ö' §", 9, "'§' was found"),
        ("a[0] = 1", 3, "from 1"),
        ("a = ?", 5, "'?' was found"),
        ("1 = 'x'", 3, "1 is a number, and the text 'x' is a text"),
        ("a + 'x' = 1", 5, "'+' and '-' stand between numbers"),
        ("a like 5", 8, "'like' compares texts"),
        ("not 5", 5, "'not' stands before what is true or false"),
        ("5", 1, "a condition has to be true or false"),
        ("'x' and true", 1, "'and' joins"),
        ("1 in (2, 'x')", 10, "compare values of one type"),
        ("lower(5) = 'x'", 7, "'lower' takes a text"),
        ("abs(true) = 1", 5, "'abs' takes a number"),
        ("- 'x' = 1", 3, "'-' stands before a number"),
    ] {
        let problem = Condition::parse(text).expect_err(text);
        assert_eq!(problem.position, position, "{text}: {problem}");
        assert!(problem.what.contains(what), "{text}: {problem}");
    }
    let too_great =
        "a = 115792089237316195423570985008687907853269984665640564039457584007913129639936";
    assert!(Condition::parse(too_great).unwrap_err().what.contains("256 bits"));
}

#[test]
fn conditions_have_limits() {
    let refused = |text: &str, what: &str| {
        let problem = Condition::parse(text).expect_err(what);
        assert!(problem.what.contains(what), "{problem}");
    };
    let padded = |bytes: usize| format!("{:bytes$}", "true");
    assert!(Condition::parse(&padded(4096)).is_ok());
    refused(&padded(4097), "4096 bytes");
    // A comparison has three parts, and each 'and' is one.
    let joined = |count: usize| vec!["a = 1"; count].join(" and ");
    assert!(Condition::parse(&joined(50)).is_ok());
    refused(&joined(51), "200 names, values and operators");
    let nested = |levels: usize| format!("{}true{}", "(".repeat(levels), ")".repeat(levels));
    assert!(Condition::parse(&nested(32)).is_ok());
    refused(&nested(33), "32 deep");
    refused(&format!("{}true", "not ".repeat(33)), "32 deep");
    refused(&format!("{}1 = 1", "- ".repeat(33)), "32 deep");
    refused(&"(".repeat(4096), "32 deep");
    refused(&format!("a{} = 1", "[1]".repeat(250)), "200 names");
}
