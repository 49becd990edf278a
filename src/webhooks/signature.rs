//! Signs and verifies deliveries in two ways at once: with a plain HMAC of the body, and with the
//! headers of Standard Webhooks (specification 1.0.0,
//! github.com/standard-webhooks/standard-webhooks), whose signature also covers the time, so that a
//! third party cannot replay a delivery much later.

use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::secret::SECRET_PREFIX;
use super::{Secret, Secrets};

/// Header with the HMAC-SHA256 of the body in lower-case hex; the key is the secret as it was
/// given, the oldest that still signs.
pub const SIGNATURE: &str = "x-service-signature";
/// Header with the UNIX time in seconds at which the request was sent. [`SIGNATURE`] does not cover
/// it.
pub const TIMESTAMP: &str = "x-service-timestamp";
/// Header with the delivery id, which stays the same when the delivery is retried.
pub const DELIVERY: &str = "x-service-delivery";
/// Header of Standard Webhooks with the delivery id.
pub const STANDARD_ID: &str = "webhook-id";
/// Header of Standard Webhooks with the same time as [`TIMESTAMP`]; the signature covers it.
pub const STANDARD_TIMESTAMP: &str = "webhook-timestamp";
/// Header with `v1,` and the base64 of the HMAC-SHA256 of `id.timestamp.body`; multiple signatures
/// are separated by spaces.
pub const STANDARD_SIGNATURE: &str = "webhook-signature";

/// Prefix of signatures in the Standard Webhooks scheme with a shared secret.
const STANDARD_VERSION: &str = "v1,";

/// Maximum difference between the clocks of sender and receiver, in seconds, as in the libraries of
/// Standard Webhooks.
pub const TOLERANCE_SECONDS: u64 = 300;

/// Returns the names and values of the headers that sign a delivery of this body, sent at `now`, in
/// UNIX milliseconds.
///
/// While a new secret has taken the place of others that have not ended, the header of Standard
/// Webhooks has a signature for each secret. [`SIGNATURE`] has room for one: that of the oldest, so that
/// a receiver that nobody has touched yet goes on working.
pub fn headers(
    secrets: &Secrets,
    delivery: &str,
    now: u64,
    body: &[u8],
) -> [(&'static str, String); 6] {
    let timestamp = now / 1000;
    let standard = |secret: &Secret| {
        let mac = standard_mac(secret.reveal(), delivery, timestamp, body);
        format!("{STANDARD_VERSION}{}", STANDARD.encode(mac.finalize().into_bytes()))
    };
    let all: Vec<String> = secrets.signing(now).map(standard).collect();
    let oldest = secrets.signing(now).next().unwrap_or(&secrets.present);
    let plain = plain_mac(oldest.reveal(), body).finalize().into_bytes();
    [
        (SIGNATURE, hex::encode(plain)),
        (TIMESTAMP, timestamp.to_string()),
        (DELIVERY, delivery.to_owned()),
        (STANDARD_ID, delivery.to_owned()),
        (STANDARD_TIMESTAMP, timestamp.to_string()),
        (STANDARD_SIGNATURE, all.join(" ")),
    ]
}

/// Why a delivery fails verification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// A header is missing.
    #[error("the header {0} is missing")]
    Missing(&'static str),
    /// A header is malformed.
    #[error("the header {0} is malformed")]
    Malformed(&'static str),
    /// The signature does not match: another secret was used, or the body was altered.
    #[error("{0} does not match the body and the secret")]
    Wrong(&'static str),
    /// The timestamp differs from the receiver's clock by this many seconds, too many.
    #[error("its timestamp differs from this clock by {0} seconds, more than 300")]
    Time(u64),
}

/// Verifies a delivery as a careful receiver does: both signatures, in constant time, and that it
/// was sent about `now` (UNIX seconds). `header` returns the value of a header by its lower-case
/// name.
///
/// # Errors
/// [`SignatureError`] for the first check that fails.
pub fn verify<'h>(
    secret: &str,
    header: impl Fn(&str) -> Option<&'h str>,
    body: &[u8],
    now: u64,
) -> Result<(), SignatureError> {
    let given = |name| header(name).ok_or(SignatureError::Missing(name));
    let mut plain = [0; 32];
    hex::decode_to_slice(given(SIGNATURE)?, &mut plain)
        .map_err(|_| SignatureError::Malformed(SIGNATURE))?;
    let checked = plain_mac(secret, body).verify_slice(&plain);
    checked.map_err(|_| SignatureError::Wrong(SIGNATURE))?;
    let sent = given(STANDARD_TIMESTAMP)?;
    // The number is signed, so only its canonical spelling is accepted.
    let timestamp: u64 = sent
        .parse()
        .ok()
        .filter(|number: &u64| number.to_string() == sent)
        .ok_or(SignatureError::Malformed(STANDARD_TIMESTAMP))?;
    let mac = standard_mac(secret, given(STANDARD_ID)?, timestamp, body);
    let fits = |one: &str| {
        let decoded = STANDARD.decode(one.strip_prefix(STANDARD_VERSION)?).ok()?;
        mac.clone().verify_slice(&decoded).ok()
    };
    // A sender that rotates its secret sends one signature for each secret.
    if given(STANDARD_SIGNATURE)?.split(' ').find_map(fits).is_none() {
        return Err(SignatureError::Wrong(STANDARD_SIGNATURE));
    }
    match timestamp.abs_diff(now) {
        apart if apart > TOLERANCE_SECONDS => Err(SignatureError::Time(apart)),
        _ => Ok(()),
    }
}

type HmacSha256 = Hmac<Sha256>;

fn plain_mac(secret: &str, body: &[u8]) -> HmacSha256 {
    new_mac(secret.as_bytes()).chain_update(body)
}

fn standard_mac(secret: &str, delivery: &str, timestamp: u64, body: &[u8]) -> HmacSha256 {
    new_mac(&standard_key(secret))
        .chain_update(format!("{delivery}.{timestamp}."))
        .chain_update(body)
}

/// Base64 decoder as lenient as that of the libraries: padding is optional, and trailing bits may
/// be set.
const KEY_DECODER: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Returns the key of the Standard Webhooks signature: the part after `whsec_`, decoded if it is
/// base64, as the libraries do, otherwise as it is.
fn standard_key(secret: &str) -> Vec<u8> {
    let rest = secret.strip_prefix(SECRET_PREFIX).unwrap_or(secret);
    KEY_DECODER.decode(rest).unwrap_or_else(|_| rest.as_bytes().to_vec())
}

fn new_mac(key: &[u8]) -> HmacSha256 {
    HmacSha256::new_from_slice(key).expect("a key may have any length (RFC 2104, section 2)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Previous;

    const NOW: u64 = 1_800_000_000;

    fn secret(text: &str) -> Secret {
        Secret::chosen(text.to_owned()).unwrap()
    }

    /// The headers under one secret, sent at this UNIX time in seconds.
    fn headers(
        text: &str,
        delivery: &str,
        timestamp: u64,
        body: &[u8],
    ) -> [(&'static str, String); 6] {
        let secrets = Secrets { present: secret(text), previous: Vec::new() };
        super::headers(&secrets, delivery, timestamp * 1000, body)
    }
    const BODY: &[u8] = br#"{"event":{"ext":"v0"},"tx_hash":"00"}"#;

    fn checked(
        secret: &str,
        headers: &[(&'static str, String)],
        body: &[u8],
        now: u64,
    ) -> Result<(), SignatureError> {
        let header = |name: &str| {
            headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
        };
        verify(secret, header, body, now)
    }

    /// Test vector that all reference libraries of Standard Webhooks use.
    #[test]
    fn signatures_match_the_reference_libraries() {
        let headers = headers(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        let (name, value) = &headers[5];
        assert_eq!(*name, "webhook-signature");
        assert_eq!(value, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    /// RFC 4231, test case 2.
    #[test]
    fn the_plain_signature_is_an_hmac_of_the_body() {
        let headers = headers("Jefe", "1", 0, b"what do ya want for nothing?");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(headers[0], ("x-service-signature", expected.to_owned()));
    }

    #[test]
    fn signed_deliveries_verify_and_altered_ones_do_not() {
        let generated = format!("whsec_{}", "0123456789abcdef".repeat(4));
        for secret in
            [generated.as_str(), "a secret!", "whsec_not base64!", "whsec_", &"k".repeat(200)]
        {
            let signed = headers(secret, "d1", NOW, BODY);
            assert_eq!(checked(secret, &signed, BODY, NOW + 300), Ok(()), "{secret}");
            for at in 0..BODY.len() {
                let mut altered = BODY.to_vec();
                altered[at] ^= 1;
                assert!(checked(secret, &signed, &altered, NOW).is_err());
            }
            for (number, at) in [(0, 3), (3, 0), (4, 9), (5, 7)] {
                let mut altered = signed.clone();
                let byte = altered[number].1.as_bytes()[at];
                let other = if byte == b'1' { "2" } else { "1" };
                altered[number].1.replace_range(at..=at, other);
                assert!(checked(secret, &altered, BODY, NOW).is_err(), "{altered:?}");
            }
            assert!(checked(&format!("{secret}x"), &signed, BODY, NOW).is_err());
        }
    }

    #[test]
    fn missing_malformed_and_late_headers_are_reported() {
        let signed = headers("s", "d1", NOW, BODY);
        for missing in [SIGNATURE, STANDARD_ID, STANDARD_TIMESTAMP, STANDARD_SIGNATURE] {
            let rest: Vec<_> =
                signed.iter().filter(|(name, _)| *name != missing).cloned().collect();
            assert_eq!(checked("s", &rest, BODY, NOW), Err(SignatureError::Missing(missing)));
        }
        assert_eq!(checked("s", &signed, BODY, NOW - 301), Err(SignatureError::Time(301)));
        for (at, value) in [(0, "zz"), (0, ""), (4, "+1800000000"), (4, "soon")] {
            let mut altered = signed.clone();
            let name = altered[at].0;
            altered[at].1 = value.to_owned();
            let outcome = checked("s", &altered, BODY, NOW);
            assert_eq!(outcome, Err(SignatureError::Malformed(name)), "{value}");
        }
        // Other senders may order the signatures otherwise.
        let other = headers("t", "d1", NOW, BODY);
        let mut both = signed.clone();
        both[5].1 = format!("{} {} v1a,x", other[5].1, signed[5].1);
        assert_eq!(checked("s", &both, BODY, NOW), Ok(()));
    }

    /// Libraries of Standard Webhooks accept a delivery if one signature fits, and receivers of the plain
    /// header know the oldest secret until it ends.
    #[test]
    fn each_secret_signs_until_it_ends() {
        let previous = |text: &str, until| Previous { secret: secret(text), until };
        let secrets = Secrets {
            present: secret("third"),
            previous: vec![previous("first", 2_000), previous("second", 3_000)],
        };
        for (now, signing) in [
            (1_999, &["first", "second", "third"][..]),
            (2_000, &["second", "third"]),
            (3_000, &["third"]),
        ] {
            let signed = super::headers(&secrets, "d1", now, BODY);
            let alone = signing.iter().map(|text| headers(text, "d1", now / 1000, BODY));
            let alone: Vec<_> = alone.collect();
            let standard: Vec<_> = alone.iter().map(|it| it[5].1.as_str()).collect();
            assert_eq!(signed[5].1, standard.join(" "));
            assert_eq!(signed[0], alone[0][0], "under the oldest");
        }
    }
}
