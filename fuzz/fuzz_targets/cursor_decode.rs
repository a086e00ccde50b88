//! Whatever the bytes, decoding a cursor ends in an error or in the one cursor that has them.

#![no_main]

use headwater::plan::Cursor;
use libfuzzer_sys::fuzz_target;

fn check(bytes: &[u8]) {
    if let Ok(cursor) = Cursor::decode(bytes) {
        assert_eq!(cursor.encode().expect("it was decoded"), bytes);
        cursor.check(cursor.kind(), cursor.plan()).expect("it belongs to its own plan");
    }
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // No search finds a BLAKE3: the checks behind it are reached by making it fit.
    let body = bytes.len().checked_sub(32).map_or(bytes, |end| &bytes[..end]);
    let mut sealed = body.to_vec();
    sealed.extend_from_slice(blake3::hash(body).as_bytes());
    check(&sealed);
});
