//! The cursor: decode inverts encode, and all other bytes are rejected.

use headwater::ErrorKind;
use headwater::durable::Disk;
use headwater::plan::{Cursor, CursorKind, Plan, Position, Setting};
use proptest::prelude::*;

use crate::golden::{sealed, typical};

fn any_value() -> impl Strategy<Value = Setting> {
    prop_oneof![
        any::<u64>().prop_map(Setting::Number),
        any::<bool>().prop_map(Setting::Flag),
        any::<String>().prop_map(Setting::Text),
        any::<[u8; 32]>().prop_map(Setting::Hash),
    ]
}

fn any_cursor() -> impl Strategy<Value = Cursor> {
    let fields = prop::collection::btree_map(any::<String>(), any_value(), 0..8);
    let counters = prop::collection::btree_map(any::<String>(), any::<u64>(), 0..8);
    (fields, counters).prop_map(|(fields, counters)| {
        let mut plan = Plan::new();
        fields.into_iter().for_each(|(name, value)| plan.add(name, value).unwrap());
        let mut position = Position::new();
        counters.into_iter().for_each(|(name, count)| position.set(name, count));
        Cursor::new(CursorKind::Sampler, plan, position)
    })
}

proptest! {
    #[test]
    fn p2_decode_inverts_encode(cursor in any_cursor()) {
        prop_assert_eq!(Cursor::decode(&cursor.encode().unwrap()).unwrap(), cursor);
    }

    /// With a right digest, the other checks still hold.
    #[test]
    fn p6_a_changed_payload_with_a_right_digest_is_rejected_or_another_cursor(
        cursor in any_cursor(), at: prop::sample::Index, bit in 0_u32..8,
    ) {
        let mut bytes = cursor.encode().unwrap();
        bytes.truncate(bytes.len() - 32);
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        let bytes = sealed(bytes);
        if let Ok(other) = Cursor::decode(&bytes) {
            prop_assert_ne!(&other, &cursor);
            prop_assert_eq!(other.plan(), cursor.plan());
            prop_assert_eq!(other.encode().unwrap(), bytes);
        }
    }

    #[test]
    fn p6_noise_is_rejected(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Cursor::decode(&noise).is_err());
        let behind_the_magic = [b"HWCURSOR".as_slice(), &noise].concat();
        prop_assert!(Cursor::decode(&behind_the_magic).is_err());
        prop_assert!(Cursor::decode(&sealed(behind_the_magic)).is_err());
    }
}

#[test]
fn p6_no_silent_change_every_flipped_bit_is_rejected() {
    let bytes = typical().encode().unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let kind = Cursor::decode(&damaged).unwrap_err().kind();
        let expected = if bit < 64 { ErrorKind::NotOurs } else { ErrorKind::Corrupt };
        assert_eq!(kind, expected, "bit {bit}");
    }
}

#[test]
fn p6_no_silent_change_truncated_or_longer_bytes_are_rejected() {
    let bytes = typical().encode().unwrap();
    for length in 0..bytes.len() {
        let error = Cursor::decode(&bytes[..length]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{length} bytes: {error}");
    }
    for excess in [&b"\0"[..], b"\n", &bytes] {
        let error = Cursor::decode(&[&bytes, excess].concat()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}

#[test]
fn p6_a_cursor_of_another_plan_is_rejected_setting_by_setting() {
    let cursor = typical();
    cursor.check(cursor.kind(), cursor.plan()).unwrap();
    let mut plan = Plan::new();
    for (name, value) in cursor.plan().iter() {
        let value = if name == "seed" { Setting::Number(43) } else { value.clone() };
        plan.add(name, value).unwrap();
    }
    let error = cursor.check(cursor.kind(), &plan).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PlanMismatch);
    assert_eq!(
        error.to_string(),
        "the cursor does not belong to this plan: 1 setting differs: \"seed\" was 42 and is \
         now 43; use the settings and data that were recorded, or start again from the beginning"
    );
}

#[test]
fn a_cursor_that_is_too_long_is_neither_written_nor_read() {
    let with_text_bytes = |text_bytes: usize| {
        let mut fields = Plan::new();
        fields.add("a", "x".repeat(text_bytes).as_str()).unwrap();
        Cursor::new(CursorKind::Sampler, fields, Position::new())
    };
    // 32 fingerprint, 8 + 8 counts, 8 + 1 name, 4 type, 8 length.
    let longest = (1 << 20) - 69;
    let bytes = with_text_bytes(longest).encode().unwrap();
    assert_eq!(Cursor::decode(&bytes).unwrap(), with_text_bytes(longest));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longest.cursor");
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(Cursor::read(&path).unwrap(), with_text_bytes(longest));
    let error = with_text_bytes(longest + 1).encode().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{error}");
    let mut longer = bytes;
    longer.push(0);
    std::fs::write(&path, &longer).unwrap();
    assert_eq!(Cursor::read(&path).unwrap_err().kind(), ErrorKind::LimitExceeded);
    let error = Cursor::decode(&sealed(longer)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{error}");
}

#[test]
fn a_plan_that_is_too_long_is_not_written() {
    let plan_of = |text_bytes: usize| {
        let mut plan = Plan::new();
        plan.add("a", "x".repeat(text_bytes).as_str()).unwrap();
        plan.encode()
    };
    // As above, without the count of the counters.
    let longest = (1 << 20) - 61;
    assert_eq!(plan_of(longest).unwrap().len(), 1 << 20);
    assert_eq!(plan_of(longest + 1).unwrap_err().kind(), ErrorKind::LimitExceeded);
}

#[test]
fn a_cursor_file_holds_exactly_the_cursors_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("step-1.cursor");
    typical().write(&Disk, &path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), typical().encode().unwrap());
    assert_eq!(Cursor::read(&path).unwrap(), typical());

    std::fs::write(&path, b"HWCURSOR").unwrap();
    let message = Cursor::read(&path).unwrap_err().to_string();
    assert!(message.starts_with(&path.display().to_string()), "{message}");
    let missing = folder.path().join("step-2.cursor");
    let error = Cursor::read(&missing).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("step-2.cursor"), "{error}");
}
