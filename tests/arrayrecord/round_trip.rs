//! A store that is exported and prepared again has the same root.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use headwater::events::{EventStore, rtt_code, rtt_of};
use headwater::prepare::schema::Schema;
use proptest::prelude::*;

use crate::{exported, pings, prepared};

/// Exports a store, prepares the files again, and compares the roots.
fn assert_returns(store: &Path, schema: &Schema) {
    let files = exported(store);
    let again = store.with_file_name("again.db");
    let report = prepared(&files.join("*.arrayrecord"), schema, &again).unwrap();
    let first = EventStore::open(store).unwrap();
    assert_eq!(report.root, first.root());
    assert_eq!(report.event_count, first.metadata().event_count());
    assert_eq!(report.dropped_count, 0);
}

/// Prepares a table in CSV, whose columns are `src_addr,dst_addr,event_time,rtt` and maybe more, and
/// compares as [`assert_returns`].
fn assert_csv_returns(text: &str, schema: &Schema) {
    let folder = tempfile::tempdir().unwrap();
    let (data, store) = (folder.path().join("pings.csv"), folder.path().join("pings.db"));
    fs::write(&data, text).unwrap();
    prepared(&data, schema, &store).unwrap();
    assert_returns(&store, schema);
}

#[test]
fn long_and_short_histories_of_both_families_return() {
    for (probes, mean, more) in [
        (60, 30, ""),
        (5, 3000, "row_bytes = 1024\nsplit = { train = 0.5, val = 0.3, test = 0.2 }"),
        (3, 20_000, "split = { train = 1.0, val = 0.0, test = 0.0 }"),
        (1, 1, ""),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = pings::prepared(folder.path(), &pings::pings(probes, mean), more);
        assert_returns(&store, &pings::schema(more));
    }
}

/// Texts that name the same address in another way are other entities, and stay what they are.
#[test]
fn addresses_return_in_the_words_of_the_source() {
    let mut text = "src_addr,dst_addr,event_time,rtt,ip_version\n".to_owned();
    for (row, (source, destination, family)) in [
        ("2001:db8::1", "2001:db8::2", "6"),
        ("2001:DB8::1", "2001:db8:0:0::2", "6"),
        ("2001:0db8:0::1", "", "6"),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", "6"),
        ("192.0.2.1", "192.0.2.2", "4"),
        (" 192.0.2.1 ", "   ", "4"),
        ("0.0.0.0", "255.255.255.255", ""),
        ("::", "", "6"),
    ]
    .into_iter()
    .enumerate()
    {
        for (time, rtt) in [(0, "-1"), (0, "-0.5"), (1, "0"), (7_258_118_399_999_999_i64, "1e-9")] {
            writeln!(
                text,
                "\"{source}\",\"{destination}\",{},{rtt},{family}",
                time + row as i64 % 2
            )
            .unwrap();
        }
    }
    let text = text.replace("7258118400000000", "7258118399999998");
    assert_csv_returns(&text, &pings::schema("dropped_share = 0.0"));
    // The same log, with the family as the schema has it.
    let mut schema = pings::schema("dropped_share = 0.0");
    let events = schema.events.as_mut().unwrap();
    events.columns.insert("family".into(), "ip_version".into());
    assert_csv_returns(&text, &schema);
}

#[test]
fn every_code_returns() {
    let mut text = "src_addr,dst_addr,event_time,rtt\n".to_owned();
    let mut codes = 0;
    for code in 0..u16::MAX {
        // Codes that no time has are those of another code, written in another way.
        let rtt = rtt_of(code) * (1.0 + 1e-5);
        if rtt_code(f64::from(rtt as f32)) == Some(code) {
            codes += 1;
            writeln!(text, "192.0.2.1,192.0.2.2,{},{rtt}", 1_751_000_000_000_000_u64 + codes)
                .unwrap();
        }
    }
    assert_eq!(codes, 2047 + 31 * 1024 - 1);
    assert_csv_returns(&text, &pings::schema("row_bytes = 100_000"));
}

fn address(number: u128, is_v6: bool) -> String {
    match is_v6 {
        true => std::net::Ipv6Addr::from(number).to_string(),
        false => std::net::Ipv4Addr::from(number as u32).to_string(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_log_returns(
        events in prop::collection::vec(
            (
                any::<bool>(),
                prop_oneof![0..4_u128, any::<u128>()],
                any::<u128>(),
                prop_oneof![0..7_258_118_400_000_000_i64, 0..1_000_000_i64],
                prop_oneof![Just(-1.0_f32), 0.0..1e9_f32, 0.0..3.0_f32],
            ),
            1..160,
        ),
        row_bytes in 1024..4000_u32,
    ) {
        let mut text = "src_addr,dst_addr,event_time,rtt\n".to_owned();
        for (is_v6, source, destination, time, rtt) in events {
            let (source, destination) = (address(source, is_v6), address(destination, is_v6));
            writeln!(text, "{source},{destination},{time},{rtt}").unwrap();
        }
        assert_csv_returns(&text, &pings::schema(&format!("row_bytes = {row_bytes}")));
    }
}
