use skillgraft_kv::{HeaderError, MissReason};

use super::*;
use crate::samples::block;

fn file_of(block: &CompiledBlock) -> Vec<u8> {
    let tensors = tensors(block);
    [encode(&block.header, &tensors), tensors.concat()].concat()
}

/// A file with the metadata fields of `block` after `edit`, digests made anew,
/// and the header's tensors after `edit_tensors`: what a faulty writer could
/// produce, beyond what digests catch.
fn forged(
    block: &CompiledBlock,
    edit: impl FnOnce(&mut BTreeMap<String, String>),
    edit_tensors: impl FnOnce(&mut Map<String, Value>),
) -> Vec<u8> {
    let file = file_of(block);
    let json = header_bytes(&file).unwrap();
    let data = &file[LENGTH_BYTES + json.len()..];
    let mut header: Map<String, Value> = serde_json::from_slice(json).unwrap();
    let mut fields = serde_json::from_value(header["__metadata__"].clone()).unwrap();
    edit(&mut fields);
    fields.insert(METADATA_DIGEST.to_owned(), metadata_digest(&fields).to_hex().to_string());
    header["__metadata__"] = json!(fields);
    edit_tensors(&mut header);
    [frame(&Value::Object(header).to_string()), data.to_vec()].concat()
}

fn set(name: &'static str, value: &'static str) -> impl FnOnce(&mut BTreeMap<String, String>) {
    move |fields| assert!(fields.insert(name.to_owned(), value.to_owned()).is_some())
}

fn fault(file: &[u8], block: &CompiledBlock) -> Fault {
    check(file, &block.header.key).expect_err("the file is bad")
}

#[test]
fn a_written_file_checks() {
    for (dtype, n_tokens) in [(KvDtype::F16, 7), (KvDtype::F32, 1), (KvDtype::F16, 129)] {
        let block = block(1, dtype, n_tokens);
        let file = file_of(&block);
        let head = check(&file, &block.header.key).unwrap();
        assert_eq!(head.header, block.header);
        assert_eq!(head.layout.data_start % ALIGNMENT, 0);
        for (range, tensor) in head.layout.ranges().zip(tensors(&block)) {
            assert_eq!(file[range], *tensor);
        }
        // An edit that changes nothing forges the same file.
        assert_eq!(forged(&block, |_| (), |_| ()), file);
    }
}

/// Every bit of the file is covered: no flip goes unseen, nor makes it panic.
#[test]
fn every_flipped_bit_is_seen() {
    let block = block(2, KvDtype::F16, 3);
    let mut file = file_of(&block);
    for bit in 0..8 * file.len() {
        file[bit / 8] ^= 1 << (bit % 8);
        let found = check(&file, &block.header.key);
        assert!(found.is_err(), "bit {} of byte {}", bit % 8, bit / 8);
        file[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(check(&file, &block.header.key).is_ok());
}

#[test]
fn every_shorter_file_is_refused() {
    let block = block(3, KvDtype::F32, 2);
    let file = file_of(&block);
    for len in 0..file.len() {
        assert_eq!(fault(&file[..len], &block).miss_reason(), MissReason::Damaged);
    }
}

#[test]
fn another_version_is_told_apart_from_damage() {
    let block = block(4, KvDtype::F16, 3);
    let newer = forged(&block, set("format", "2"), |_| ());
    let found = fault(&newer, &block);
    assert!(matches!(&found, Fault::Header(HeaderError::Version { found }) if found == "2"));
    assert_eq!(found.miss_reason(), MissReason::OtherVersion);
}

#[test]
fn another_key_is_foreign_only_when_the_header_is_whole() {
    let (asked, other) = (block(5, KvDtype::F16, 3), block(6, KvDtype::F16, 3));
    let mut file = file_of(&other);
    assert_eq!(fault(&file, &asked).miss_reason(), MissReason::Foreign);
    let label = file.windows(5).position(|bytes| bytes == b"skill").unwrap();
    file[label] = b'S';
    assert_eq!(fault(&file, &asked).miss_reason(), MissReason::Damaged);
}

#[test]
fn a_changed_field_is_damage() {
    let block = block(7, KvDtype::F16, 3);
    let mut file = file_of(&block);
    let compiled_at = b"\"compiled_at\":\"11\"";
    let start = file.windows(compiled_at.len()).position(|bytes| bytes == compiled_at).unwrap();
    file[start + compiled_at.len() - 2] = b'2';
    assert!(matches!(fault(&file, &block), Fault::MetadataDigest { .. }));
}

/// Headers whose digests are right and whose sense is wrong: none may panic,
/// overflow or make the reader walk a made-up number of layers.
#[test]
fn absurd_shapes_are_refused() {
    let block = block(8, KvDtype::F16, 3);
    let huge = "18446744073709551615";
    let cases = [
        ("n_layers", huge, true),
        ("n_layers", "0", true),
        ("n_layers", "9223372036854775808", true),
        ("n_kv_heads", "0", true),
        ("n_kv_heads", huge, true),
        ("head_dim", "4611686018427387904", true),
        ("tokens", "", true),
        ("n_layers", "2", false),
        ("n_layers", "100000000000", false),
        ("n_kv_heads", "5", false),
        ("head_dim", "2", false),
        ("dtype", "f32", false),
        ("tokens", "1 2", false),
    ];
    for (name, value, is_shape) in cases {
        let found = fault(&forged(&block, set(name, value), |_| ()), &block);
        assert_eq!(found.miss_reason(), MissReason::Damaged);
        assert_eq!(matches!(found, Fault::Shape { .. }), is_shape, "{name} {value}: {found}");
    }
}

#[test]
fn missing_digests_are_refused() {
    let block = block(9, KvDtype::F16, 3);
    for digest in ["blake3.k.0", "blake3.v.2"] {
        let without = forged(&block, |fields| drop(fields.remove(digest)), |_| ());
        assert!(matches!(fault(&without, &block), Fault::DigestField { field } if field == digest));
    }
    let other = forged(&block, set("blake3.v.2", "0"), |_| ());
    assert!(matches!(fault(&other, &block), Fault::DigestField { .. }));
}

#[test]
fn tensors_must_lie_where_the_format_puts_them() {
    let block = block(10, KvDtype::F16, 3);
    let swapped = forged(
        &block,
        |_| (),
        |header| {
            let (first, second) = (header["k.0"].clone(), header["v.0"].clone());
            header["k.0"] = second;
            header["v.0"] = first;
        },
    );
    assert!(matches!(fault(&swapped, &block), Fault::Tensor { name } if name == "k.0"));
    let reshaped = forged(&block, |_| (), |header| header["v.1"]["shape"] = json!([3, 2, 5]));
    assert!(matches!(fault(&reshaped, &block), Fault::Tensor { name } if name == "v.1"));
    let retyped = forged(&block, |_| (), |header| header["k.2"]["dtype"] = json!("BF16"));
    assert!(matches!(fault(&retyped, &block), Fault::Tensor { name } if name == "k.2"));
    let renamed = forged(
        &block,
        |_| (),
        |header| {
            let tensor = header.remove("v.2").unwrap();
            header.insert("w.2".to_owned(), tensor);
        },
    );
    assert!(matches!(fault(&renamed, &block), Fault::Tensor { name } if name == "v.2"));
    let extra = forged(
        &block,
        |_| (),
        |header| {
            let nothing = json!({ "dtype": "F16", "shape": [0], "data_offsets": [180, 180] });
            header.insert("extra".to_owned(), nothing);
        },
    );
    assert_eq!(fault(&extra, &block).miss_reason(), MissReason::Damaged);
}

/// Offsets near the end of the address space, which a sum with the header's
/// length would carry past it.
#[test]
fn enormous_offsets_are_refused() {
    let block = block(11, KvDtype::F16, 3);
    let enormous = forged(
        &block,
        |_| (),
        |header| {
            let n = usize::MAX / 8;
            for (i, name) in ["a", "b", "c", "d", "e", "f", "g", "h"].into_iter().enumerate() {
                let tensor =
                    json!({ "dtype": "U8", "shape": [n], "data_offsets": [n * i, n * (i + 1)] });
                header.insert(name.to_owned(), tensor);
            }
            for name in tensor_names(3) {
                header.remove(&name);
            }
        },
    );
    assert!(matches!(fault(&enormous, &block), Fault::TensorCount { found: 8, .. }));
}

#[test]
fn a_header_of_other_alignment_is_refused() {
    let block = block(12, KvDtype::F16, 3);
    let file = file_of(&block);
    let json = header_bytes(&file).unwrap();
    let length = (json.len() + 8) as u64;
    let data = &file[LENGTH_BYTES + json.len()..];
    let shifted = [&length.to_le_bytes()[..], json, &[b' '; 8], data].concat();
    assert!(matches!(fault(&shifted, &block), Fault::Misaligned { .. }));
}

#[test]
fn a_header_beyond_the_limit_is_not_parsed() {
    let block = block(13, KvDtype::F16, 3);
    let length = HEADER_BYTES_MAX as u64 + 1;
    let file = [&length.to_le_bytes()[..], &vec![b' '; HEADER_BYTES_MAX + 64]].concat();
    assert!(matches!(fault(&file, &block), Fault::HeaderTooLong { .. }));
    assert!(matches!(fault(&[0xff; 64], &block), Fault::HeaderTooLong { .. }));
}
