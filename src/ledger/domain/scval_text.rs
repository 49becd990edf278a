//! Contract values as people write them: a type and a value, an address, or the name of an event.

use std::str::FromStr;

use stellar_xdr::{
    BytesM, Duration, Int128Parts, Int256Parts, ScAddress, ScBytes, ScString, ScSymbol, ScVal,
    StringM, TimePoint, UInt128Parts, UInt256Parts, WriteXdr,
};

use super::scval::{ENTERED_VALUE, decode_base64};
use super::{ParseError, excerpt};

/// Maximum length of a symbol, in bytes, as the network defines it.
const LONGEST_SYMBOL: usize = 32;

/// How the base64 of every `ScVal` begins: its type is a small number in four bytes.
const XDR_BEGINS: &str = "AAAA";

/// Returns the XDR of the `ScVal` that a text stands for. The first of these that it is:
///
/// 1. the base64 of an `ScVal`, with or without padding; a space is read as a `+` that was not
///    percent-encoded;
/// 2. `type:value`, divided at the first `:`, such as `u64:5`, `string:a b` or `bytes:00ff`;
/// 3. a strkey (SEP-23), for an address;
/// 4. a word of up to 32 letters, digits and `_`, for a symbol; not one that begins as the base64 of
///    every `ScVal` does, which is most likely XDR that was cut.
///
/// # Errors
/// When it is none of them.
pub fn scval_from_text(text: &str) -> Result<Vec<u8>, ParseError> {
    let problem = |what: String| {
        ParseError(format!(
            "holds '{}', {what}: give type:value (such as symbol:transfer, u64:5 or address:G…), a \
             symbol, an address, or the base64 XDR of an ScVal",
            excerpt(text)
        ))
    };
    if let Ok(bytes) = decode_base64(text) {
        return Ok(bytes);
    }
    let value = match text.split_once(':') {
        Some((kind, value)) => typed(kind, value).map_err(problem)?,
        None => untyped(text).map_err(problem)?,
    };
    // A value that was just made has no more depth or bytes than its text.
    value.to_xdr(ENTERED_VALUE).map_err(|_| problem("which is too long".to_owned()))
}

fn untyped(text: &str) -> Result<ScVal, String> {
    if let Ok(address) = text.parse::<ScAddress>() {
        return Ok(ScVal::Address(address));
    }
    if text.starts_with(XDR_BEGINS) {
        return Err("which begins as XDR does and is not exactly one value: give all of it, or \
             'symbol:AAAA…' for a symbol"
            .to_owned());
    }
    let symbol = symbol(text).map(ScVal::Symbol);
    symbol.ok_or_else(|| "which is neither a symbol nor an address nor base64".to_owned())
}

fn typed(kind: &str, text: &str) -> Result<ScVal, String> {
    let symbol_or_problem = |text| {
        let most = LONGEST_SYMBOL;
        symbol(text).ok_or_else(|| {
            format!("whose symbol is not made of letters, digits and _, {most} at the most")
        })
    };
    Ok(match kind {
        "bool" => match text {
            "true" => ScVal::Bool(true),
            "false" => ScVal::Bool(false),
            _ => return Err("which is neither bool:true nor bool:false".to_owned()),
        },
        "u32" => ScVal::U32(number(kind, text)?),
        "i32" => ScVal::I32(number(kind, text)?),
        "u64" => ScVal::U64(number(kind, text)?),
        "i64" => ScVal::I64(number(kind, text)?),
        "timepoint" => ScVal::Timepoint(TimePoint(number(kind, text)?)),
        "duration" => ScVal::Duration(Duration(number(kind, text)?)),
        "u128" => ScVal::U128(number::<UInt128Parts>(kind, text)?),
        "i128" => ScVal::I128(number::<Int128Parts>(kind, text)?),
        "u256" => ScVal::U256(number::<UInt256Parts>(kind, text)?),
        "i256" => ScVal::I256(number::<Int256Parts>(kind, text)?),
        "symbol" => match text {
            "" => ScVal::Symbol(ScSymbol::default()),
            _ => ScVal::Symbol(symbol_or_problem(text)?),
        },
        "string" => ScVal::String(ScString(string(text.as_bytes())?)),
        "bytes" => {
            let bytes = hex::decode(text)
                .map_err(|_| "whose bytes are not pairs of hexadecimal digits".to_owned())?;
            let bytes = BytesM::try_from(bytes).map_err(|_| "which is too long".to_owned())?;
            ScVal::Bytes(ScBytes(bytes))
        }
        "address" => ScVal::Address(
            text.parse().map_err(|_| "whose address is no strkey, such as G… or C…".to_owned())?,
        ),
        _ => return Err(format!("and there is no type '{}'", excerpt(kind))),
    })
}

/// Parses ASCII digits, with a `-` before them where the type has negative numbers.
fn number<N: FromStr>(kind: &str, text: &str) -> Result<N, String> {
    let digits = match kind.as_bytes().first() {
        Some(b'i') => text.strip_prefix('-').unwrap_or(text),
        _ => text,
    };
    let is_decimal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = if is_decimal { text.parse().ok() } else { None };
    number.ok_or_else(|| format!("whose number is no {kind}"))
}

fn string(text: &[u8]) -> Result<StringM, String> {
    StringM::try_from(text.to_vec()).map_err(|_| "which is too long".to_owned())
}

/// Returns the symbol that a text spells; `None` for an empty text too.
fn symbol(text: &str) -> Option<ScSymbol> {
    let is_word = !text.is_empty() && text.bytes().all(is_of_symbols);
    let symbol = is_word.then(|| text.as_bytes().to_vec().try_into().ok().map(ScSymbol));
    symbol.flatten()
}

fn is_of_symbols(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
    use stellar_xdr::{Limits, ReadXdr};

    use super::*;

    fn value(text: &str) -> Result<ScVal, String> {
        let xdr = scval_from_text(text).map_err(|error| error.to_string())?;
        Ok(ScVal::from_xdr(xdr, Limits::none()).unwrap())
    }

    fn symbol_of(text: &str) -> ScVal {
        ScVal::Symbol(ScSymbol(text.try_into().unwrap()))
    }

    #[test]
    fn each_type_is_read() {
        let string = |text: &[u8]| ScVal::String(ScString(text.to_vec().try_into().unwrap()));
        let bytes = |bytes: &[u8]| ScVal::Bytes(ScBytes(bytes.to_vec().try_into().unwrap()));
        let least =
            "-57896044618658097711785492504343953926634992332820282019728792003956564819968";
        for (text, expected) in [
            ("bool:true", ScVal::Bool(true)),
            ("bool:false", ScVal::Bool(false)),
            ("u32:4294967295", ScVal::U32(u32::MAX)),
            ("i32:-2147483648", ScVal::I32(i32::MIN)),
            ("u64:007", ScVal::U64(7)),
            ("i64:-1", ScVal::I64(-1)),
            ("timepoint:1700000000", ScVal::Timepoint(TimePoint(1_700_000_000))),
            ("duration:0", ScVal::Duration(Duration(0))),
            ("u128:18446744073709551616", ScVal::U128(UInt128Parts { hi: 1, lo: 0 })),
            ("i128:-1", ScVal::I128(Int128Parts { hi: -1, lo: u64::MAX })),
            (
                "u256:18446744073709551616",
                ScVal::U256(UInt256Parts { hi_hi: 0, hi_lo: 0, lo_hi: 1, lo_lo: 0 }),
            ),
            (
                &format!("i256:{least}"),
                ScVal::I256(Int256Parts { hi_hi: i64::MIN, hi_lo: 0, lo_hi: 0, lo_lo: 0 }),
            ),
            ("symbol:transfer", symbol_of("transfer")),
            ("symbol:", symbol_of("")),
            ("string:", string(b"")),
            ("string:a:b c+é", string("a:b c+é".as_bytes())),
            ("bytes:", bytes(&[])),
            ("bytes:00fF", bytes(&[0, 255])),
            ("transfer", symbol_of("transfer")),
            ("0", symbol_of("0")),
            (&"x".repeat(32), symbol_of(&"x".repeat(32))),
        ] {
            assert_eq!(value(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn addresses_of_every_kind_are_read() {
        for address in [
            "GA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJVSGZ",
            "CAS3J7GYLGXMF6TDJBBYYSE3HQ6BBSMLNUQ34T6TZMYMW2EVH34XOWMA",
            "MA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJUAAAAAAAAAAAACJUQ",
            "BAAD6DBUX6J22DMZOHIEZTEQ64CVCHEDRKWZONFEUL5Q26QD7R76RGR4TU",
            "LA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJUPJN",
        ] {
            let read = value(address).unwrap();
            assert_eq!(value(&format!("address:{address}")), Ok(read.clone()));
            let ScVal::Address(read) = read else { panic!("{address}: {read:?}") };
            assert_eq!(read.to_string(), address);
        }
    }

    /// XDR comes first: what is the base64 of a value is never a word.
    #[test]
    fn xdr_is_read_with_and_without_padding() {
        let values = [ScVal::U32(0xfb), ScVal::Void, symbol_of("transfer"), ScVal::Vec(None)];
        for expected in values {
            let xdr = expected.to_xdr(Limits::none()).unwrap();
            for text in [STANDARD.encode(&xdr), STANDARD_NO_PAD.encode(&xdr)] {
                assert_eq!(value(&text), Ok(expected.clone()), "{text}");
                assert_eq!(value(&text.replace('+', " ")), Ok(expected.clone()), "{text}");
            }
        }
    }

    /// A word that begins as XDR does would be a filter that no event ever matches.
    #[test]
    fn xdr_that_is_cut_or_has_bytes_behind_it_is_no_symbol() {
        let values = [ScVal::U32(0xfb), ScVal::Void, symbol_of("transfer"), symbol_of("fee")];
        for value_of in values {
            let xdr = value_of.to_xdr(Limits::none()).unwrap();
            for engine in [STANDARD, STANDARD_NO_PAD] {
                let whole = engine.encode(&xdr);
                for length in XDR_BEGINS.len()..whole.len() {
                    let text = &whole[..length];
                    if let Ok(read) = value(text) {
                        // What is left is the same value without its padding.
                        assert_eq!(read, value_of, "{text}");
                    }
                }
                let longer = [xdr.clone(), vec![0; 4]].concat();
                for text in [engine.encode(&xdr[..xdr.len() - 1]), engine.encode(longer)] {
                    let refused = value(&text).unwrap_err();
                    assert!(refused.contains("begins as XDR does"), "{text}: {refused}");
                }
            }
        }
        for text in ["AAAA", "AAAAx", "AAAA_word", &"A".repeat(33)] {
            let refused = value(text).unwrap_err();
            assert!(refused.contains("'symbol:AAAA"), "{text}: {refused}");
        }
        assert_eq!(value("symbol:AAAA"), Ok(symbol_of("AAAA")));
        for word in ["AAA", "aAAAA", "aaaa", "AAA_A"] {
            assert_eq!(value(word), Ok(symbol_of(word)), "{word}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_forms() {
        for (text, what) in [
            ("", "neither a symbol nor"),
            (" ", "neither a symbol nor"),
            ("a b", "neither a symbol nor"),
            ("é", "neither a symbol nor"),
            (&"x".repeat(33), "neither a symbol nor"),
            ("CAS3J7GYLGXMF6TDJBBYYSE3HQ6BBSMLNUQ34T6TZMYMW2EVH34XOWMB", "neither a symbol nor"),
            (":", "no type ''"),
            ("U32:1", "no type 'U32'"),
            ("vec:1", "no type 'vec'"),
            ("bool:1", "neither bool:true"),
            ("u32:", "no u32"),
            ("u32:-1", "no u32"),
            ("u32:+1", "no u32"),
            ("u32: 1", "no u32"),
            ("u32:4294967296", "no u32"),
            ("u64:١", "no u64"),
            ("i128:--1", "no i128"),
            ("i256:-", "no i256"),
            ("u256:0x10", "no u256"),
            ("timepoint:-1", "no timepoint"),
            ("duration:1.5", "no duration"),
            ("bytes:0", "hexadecimal"),
            ("bytes:0x00", "hexadecimal"),
            ("symbol:a-b", "letters"),
            (&format!("symbol:{}", "x".repeat(33)), "letters"),
            ("address:G", "strkey"),
            ("address:SBU2RRGLXH3E5CQHTD3ODLDF2BWDCYUSSBLLZ5GNW7JXHDIYKXZWHXL7", "strkey"),
        ] {
            let refused = value(text).unwrap_err();
            assert!(refused.contains(what) && refused.contains("type:value"), "{text}: {refused}");
        }
    }
}
