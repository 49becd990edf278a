//! Negotiates and applies gzip compression of responses.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use warp::http::HeaderMap;
use warp::http::header::ACCEPT_ENCODING;

use super::answer::{Answer, Finished};

/// Size in bytes up to which a body is not compressed, because it fits into a packet or two anyway.
const MIN_COMPRESSED_BYTES: usize = 1024;

/// Compresses a body; `None` when it is too small to be worth it.
pub(super) fn gzip(body: &[u8]) -> io::Result<Option<Vec<u8>>> {
    if body.len() <= MIN_COMPRESSED_BYTES {
        return Ok(None);
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 3), Compression::fast());
    encoder.write_all(body)?;
    encoder.finish().map(Some)
}

/// Compresses a response when the client prefers gzip and the body is large enough.
pub(super) fn finish(answer: Answer, wants_gzip: bool) -> Finished {
    // When compression fails, the response is sent uncompressed.
    let compressed = wants_gzip.then(|| gzip(&answer.body).ok().flatten());
    Finished::new(answer, compressed.flatten())
}

/// Whether the client prefers gzip to no encoding (RFC 9110, section 12.5.3).
pub(super) fn wants_gzip(headers: &HeaderMap) -> bool {
    let (mut gzip, mut any, mut identity) = (None, None, None);
    let lists = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    for element in lists.flat_map(|list| list.split(',')) {
        let (coding, parameters) = element.split_once(';').unwrap_or((element, ""));
        let weight = weight(parameters);
        match coding.trim().to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => gzip = Some(weight),
            "*" => any = Some(weight),
            "identity" => identity = Some(weight),
            _ => {}
        }
    }
    let gzip = gzip.or(any).unwrap_or(0);
    gzip > 0 && gzip >= identity.unwrap_or(0)
}

/// Parses the weight `q=0.5` into thousandths: 1000 when it is absent, 0 when it is invalid.
fn weight(parameters: &str) -> u32 {
    let Some(value) = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim())
    }) else {
        return 1000;
    };
    match value.parse::<f64>() {
        Ok(weight) if (0.0..=1.0).contains(&weight) => (weight * 1000.0).round() as u32,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn accept_encoding_is_parsed() {
        for (value, expected) in [
            ("", false),
            ("gzip", true),
            ("GZip", true),
            ("x-gzip", true),
            ("deflate, gzip;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip; q=0.000", false),
            ("gzip;q=0, *;q=1", false),
            ("*", true),
            ("*;q=0", false),
            ("br;q=1.0, *;q=0.1", true),
            ("identity", false),
            ("identity;q=1, gzip;q=0.5", false),
            ("identity;q=0.5, gzip;q=1.0", true),
            ("gzip;q=x", false),
            ("gzip;q=2", false),
            ("gzipped", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, value.parse().unwrap());
            assert_eq!(wants_gzip(&headers), expected, "{value}");
        }
        assert!(!wants_gzip(&HeaderMap::new()));
    }

    #[test]
    fn only_large_bodies_are_compressed() {
        assert!(gzip(&[b'x'; MIN_COMPRESSED_BYTES]).unwrap().is_none());
        let body = vec![b'x'; MIN_COMPRESSED_BYTES + 1];
        let compressed = gzip(&body).unwrap().unwrap();
        let mut read = Vec::new();
        GzDecoder::new(compressed.as_slice()).read_to_end(&mut read).unwrap();
        assert_eq!(read, body);
    }
}
