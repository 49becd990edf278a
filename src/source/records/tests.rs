use std::io::Write;

use super::*;

fn ledger(sequence: u32) -> Vec<u8> {
    generated::ledger(sequence, 0)
}

fn framed(sequences: &[u32]) -> Vec<u8> {
    let mut stream = Vec::new();
    for sequence in sequences {
        let record = ledger(*sequence);
        stream.extend((LAST_FRAGMENT | record.len() as u32).to_be_bytes());
        stream.extend(record);
    }
    stream
}

fn batch(first: u32, last: u32, sequences: &[u32]) -> Vec<u8> {
    generated::batch(first, last, sequences.iter().map(|sequence| ledger(*sequence)))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd_frames(parts: &[&[u8]]) -> Vec<u8> {
    parts.iter().flat_map(|part| zstd::encode_all(*part, 1).unwrap()).collect()
}

fn too_long() -> String {
    let longest = LONGEST_LEDGER >> 20;
    format!("the ledger at byte 0 is longer than {longest} MiB, the most that is read")
}

fn read(file: Vec<u8>) -> Result<Vec<u32>, RecordError> {
    let mut sequences = Vec::new();
    for record in Records::new(Cursor::new(file))? {
        let Record { sequence, xdr, .. } = record?;
        assert_eq!(xdr, ledger(sequence.0));
        sequences.push(sequence.0);
    }
    Ok(sequences)
}

#[test]
fn every_format_and_compression_is_recognised() {
    let json = format!(
        r#"{{"result":{{"ledgers":[{{"metadataXdr":"{}","sequence":5}},{{"metadataXdr":"{}"}}]}}}}"#,
        STANDARD.encode(ledger(5)),
        STANDARD.encode(ledger(6)),
    );
    for (plain, expected) in [
        (framed(&[2, 3, 4]), vec![2, 3, 4]),
        (ledger(7), vec![7]),
        (batch(9, 9, &[9]), vec![9]),
        (batch(8, 10, &[8, 9, 10]), vec![8, 9, 10]),
        (batch(2, 3, &[2, 3]), vec![2, 3]),
        (batch(2, 2, &[2]), vec![2]),
        (json.into_bytes(), vec![5, 6]),
    ] {
        let (left, right) = plain.split_at(plain.len() / 2);
        let members: Vec<u8> = [gzip(left), gzip(right)].concat();
        for file in [plain.clone(), gzip(&plain), members, zstd_frames(&[left, right])] {
            assert_eq!(read(file).unwrap(), expected);
        }
    }
}

/// A zstd file with one ledger is available in its compressed form.
#[test]
fn the_compressed_form_of_a_single_ledger_file_is_returned() {
    for (plain, offset) in [
        (ledger(7), Some(0)),
        (batch(9, 9, &[9]), Some(12)),
        (batch(8, 9, &[8, 9]), None),
        (framed(&[2]), None),
    ] {
        for file in [plain.clone(), gzip(&plain), zstd_frames(&[&plain[..20], &plain[20..]])] {
            let expected = offset.filter(|_| file.starts_with(&ZSTD));
            for record in Records::of(file.clone().into(), LONGEST_LEDGER).unwrap() {
                let Record { xdr, compressed, .. } = record.unwrap();
                assert_eq!(compressed.as_ref().map(|compressed| compressed.offset), expected);
                if let Some(CompressedLedger { frames, offset }) = compressed {
                    let content = zstd::decode_all(&frames[..]).unwrap();
                    assert_eq!((&frames[..], &content[offset.into()..]), (&file[..], &xdr[..]));
                }
            }
        }
    }
}

#[test]
fn every_truncation_is_an_error_and_never_a_partial_ledger() {
    let whole = framed(&[2, 3]);
    let one = ledger(2).len() as u64 + 4;
    for length in 8..whole.len() {
        let result = read(whole[..length].to_vec());
        if length as u64 == one {
            // The end of a record is also the end of a shorter stream.
            assert_eq!(result.unwrap(), [2]);
            continue;
        }
        let begin = if (length as u64) < one { 0 } else { one };
        assert!(
            matches!(result, Err(RecordError::Truncated { offset }) if offset == begin),
            "{length}: {result:?}"
        );
    }
    let whole = batch(8, 9, &[8, 9]);
    for length in 12..whole.len() {
        let result = read(whole[..length].to_vec());
        assert!(matches!(result, Err(RecordError::Truncated { .. })), "{length}: {result:?}");
    }
    for compressed in [gzip(&framed(&[2, 3])), zstd_frames(&[&framed(&[2, 3])])] {
        for length in 0..compressed.len() {
            assert!(read(compressed[..length].to_vec()).is_err(), "{length}");
        }
    }
}

#[test]
fn ledgers_before_a_fault_are_returned() {
    let mut file = framed(&[2, 3]);
    let end = file.len();
    file.extend([0, 0, 1, 0]);
    let mut records = Records::new(Cursor::new(file)).unwrap();
    assert_eq!(records.next().unwrap().unwrap().sequence, LedgerSeq(2));
    assert_eq!(records.next().unwrap().unwrap().sequence, LedgerSeq(3));
    let error = records.next().unwrap().unwrap_err();
    assert!(error.to_string().contains(&format!("damaged at byte {end}")), "{error}");
    assert!(records.next().is_none());
}

#[test]
fn other_files_are_refused() {
    for (file, sentence) in [
        (Vec::new(), "empty"),
        (gzip(b""), "empty"),
        (b"# A text about ledgers".to_vec(), "holds no ledgers"),
        (b"\x89PNG\r\n\x1a\n and more".to_vec(), "holds no ledgers"),
        (br#"{"ledgers":[]}"#.to_vec(), "holds no ledgers"),
        (br#"{"ledgers":["#.to_vec(), "damaged"),
        (br#"{"metadataXdr":"%"}"#.to_vec(), "not base64"),
        (batch(8, 9, &[8]), "holds no ledgers"),
        (batch(8, 9, &[8, 10]), "announces ledger 9 and holds 10"),
        ([batch(8, 9, &[8, 9]), vec![0]].concat(), "more bytes follow"),
        ([batch(8, 8, &[9])].concat(), "announces ledger 8 and holds 9"),
        (vec![0; 8], "no ledger header"),
    ] {
        let error = read(file).unwrap_err().to_string();
        assert!(error.contains(sentence), "{error}");
    }
}

#[test]
fn a_false_length_reserves_no_memory() {
    let mut file = (LAST_FRAGMENT | (LONGEST_LEDGER as u32)).to_be_bytes().to_vec();
    file.extend([0; 64]);
    assert!(matches!(read(file), Err(RecordError::Truncated { offset: 0 })));
    let mut file = (LAST_FRAGMENT | (LONGEST_LEDGER as u32 + 1)).to_be_bytes().to_vec();
    file.extend([0; 64]);
    assert_eq!(read(file).unwrap_err().to_string(), too_long());
}

#[test]
fn a_decompression_bomb_ends_at_the_size_limit() {
    let zeros = std::io::repeat(0).take(LONGEST_LEDGER + 2);
    let bomb = zstd::encode_all(zeros, 1).unwrap();
    assert!(bomb.len() < 1 << 20);
    assert_eq!(read(bomb).unwrap_err().to_string(), too_long());
}
