//! References that names do not tell: by value, in pairs, within a table; and values that are none.

use headwater::prepare::schema::Schema;

use super::draft::{csv, drafted, summary};
use super::*;

/// A team's code: three letters that say nothing.
fn team(i: u64) -> String {
    let letter = |n: u64| char::from(b'A' + (n * 7 % 26) as u8);
    format!("{}{}{}", letter(i), letter(i / 26 + 3), letter(i + 11))
}

fn text_of(files: &[(&str, &[u8])]) -> String {
    drafted(&*opened(folder(files).path())).render()
}

fn schema_of(files: &[(&str, &[u8])]) -> Schema {
    drafted(&*opened(folder(files).path())).schema
}

#[test]
fn roles_refer_to_a_table_by_value() {
    let teams = csv("team,town", 40, |i| format!("{},town {}", team(i), i % 7));
    let games = csv("game_id,home_team,visitors,score", 300, |i| {
        format!("{i},{},{},{}", team(i % 40), team((i * 3 + 1) % 40), i % 5)
    });
    let files: &[(&str, &[u8])] = &[("games.csv", &games), ("teams.csv", &teams)];
    let text = text_of(files);
    for line in [
        "key = \"team\" # other columns refer to it; unique and never NULL\n",
        "{ columns = \"home_team\", to = \"teams\" }, # by its values; all 40 values are keys there\n",
        "{ columns = \"visitors\", to = \"teams\" }, # by its values; all 40 values are keys there\n",
    ] {
        assert!(text.contains(line), "{line}\nis not in\n{text}");
    }
}

#[test]
fn keys_are_found_that_are_named_after_other_things() {
    let people = csv("playerID,name", 60, |i| format!("p{i:03}x,name {i}"));
    let awards = csv("playerID,award", 200, |i| format!("p{:03}x,a{}", i % 50, i % 9));
    let schema = schema_of(&[("people.csv", &people), ("awards.csv", &awards)]);
    assert_eq!(summary(&schema, "people"), "key playerID | time - | ");
    assert_eq!(summary(&schema, "awards"), "key  | time - | playerID > people");
}

#[test]
fn small_integers_are_not_references() {
    // Quantities, ranks, ages, percentages and lines are keys of tables that number their rows.
    let wares = csv("c1,c2", 400, |i| format!("{},ware {i}", i + 1));
    let sales = csv("c3,c4,c5,c6,c7,c8", 2000, |i| {
        let (quantity, rank, age) = (i % 12 + 1, i % 37 + 1, 18 + i * i % 60);
        format!("{},{quantity},{rank},{age},{},{}", i + 1000, i * 7 % 101, i % 3)
    });
    let text = text_of(&[("a.csv", &wares), ("b.csv", &sales)]);
    assert!(!text.contains("references"), "{text}");
}

#[test]
fn integers_that_reach_the_last_key_are_references() {
    let wares = csv("c1,c2", 400, |i| format!("{},ware {i}", i + 1));
    let clerks = csv("c3,c4", 30, |i| format!("{},clerk {i}", i + 1));
    let sales =
        csv("c5,c6,c7", 2000, |i| format!("{},{},{}", i * 131 % 400 + 1, i * 7 % 30 + 1, i));
    let files: &[(&str, &[u8])] = &[("a.csv", &wares), ("b.csv", &clerks), ("d.csv", &sales)];
    assert_eq!(summary(&schema_of(files), "d"), "key  | time - | c5 > a, c6 > b");
    let note = "to = \"a\" }, # by its values; all 400 values are keys there, and they reach from the \
                first key to the last\n";
    assert!(text_of(files).contains(note));
    // Where other names say what they are, a name that does not is a doubt.
    let named = csv("clerk_id,ware,n", 2000, |i| format!("{},{},{i}", i * 7 % 30 + 1, i % 400 + 1));
    let clerks = csv("id,c4", 30, |i| format!("{},clerk {i}", i + 1));
    let wares = csv("id,c2", 400, |i| format!("{},thing {i}", i + 1));
    let goods: &[(&str, &[u8])] =
        &[("goods.csv", &wares), ("clerks.csv", &clerks), ("d.csv", &named)];
    assert_eq!(summary(&schema_of(goods), "d"), "key  | time - | clerk_id > clerks");
    let line = "  # { columns = \"ware\", to = \"goods\" }, # doubtful: all 400 values are keys there, \
                and its integers may be counts; to use it, remove the # before it\n";
    assert!(text_of(goods).contains(line), "{}", text_of(goods));
}

#[test]
fn rows_in_the_order_of_their_events_refer_to_them() {
    let events = csv("c1,c2", 900, |i| format!("{},2020-01-{:02}", i + 1, i % 28 + 1));
    let shots = csv("c3,c4", 3000, |i| format!("{},{}.5", 300 + i / 10, i % 7));
    let schema = schema_of(&[("a.csv", &events), ("b.csv", &shots)]);
    assert_eq!(summary(&schema, "b"), "key  | time via c3 | c3 > a");
}

#[test]
fn sparse_keys_are_references_wherever_they_lie() {
    let key = |i: u64| 1_000_000 + i * i * 37 % 900_000 * 7;
    let things = csv("c1,c2", 500, |i| format!("{},thing {i}", key(i)));
    let uses = csv("c3,c4", 700, |i| format!("{},{}", key(i % 60), i % 4));
    let schema = schema_of(&[("a.csv", &things), ("b.csv", &uses)]);
    assert_eq!(summary(&schema, "b"), "key  | time - | c3 > a");
}

#[test]
fn booleans_years_and_times_are_not_references() {
    let flags = csv("c1,c2", 2, |i| format!("{},{}", ["true", "false"][i as usize], i));
    let years = csv("c3,c4", 60, |i| format!("{},w{i}", 1960 + i));
    let days = csv("c5,c6", 28, |i| format!("2020-01-{:02},{i}.5", i + 1));
    let facts = csv("c7,c8,c9", 900, |i| {
        format!("{},{},2020-01-{:02}", i % 2 == 0, 1960 + i % 60, i % 28 + 1)
    });
    let text = text_of(&[
        ("flags.csv", &flags),
        ("years.csv", &years),
        ("days.csv", &days),
        ("facts.csv", &facts),
    ]);
    let doubt = "  # { columns = \"c8\", to = \"years\" }, # doubtful: all 60 values are keys there, and \
                 its values may be years; to use it, remove the # before it\n";
    assert!(text.contains(doubt), "{text}");
    assert!(!text.contains("\n  {"), "{text}");
}

#[test]
fn tables_with_the_same_keys_refer_to_the_first() {
    let code = |i: u64| format!("X{:05}", i * 7919 % 100_000);
    let orders =
        csv("c1,c2,c3", 300, |i| format!("{},2020-02-{:02},{}.5", code(i), i % 28 + 1, i % 9));
    let bills =
        csv("c4,c5,c6,c7", 300, |i| format!("{},2021-02-{:02},{}.5,x", code(i), i % 28 + 1, i % 9));
    let returns = csv("c8,c9", 100, |i| format!("{},{}", code(i * 2), i % 4));
    let notes = csv("d1,d2", 900, |i| format!("{},note {i}", code(i * 2 % 200)));
    let files: &[(&str, &[u8])] =
        &[("a.csv", &bills), ("b.csv", &notes), ("c.csv", &orders), ("d.csv", &returns)];
    let schema = schema_of(files);
    // Orders came before their bills; notes are about orders, though returns have all their keys.
    assert_eq!(summary(&schema, "c"), "key c1 | time c2 | ");
    assert!(summary(&schema, "a").ends_with("| c4 > c"), "{}", summary(&schema, "a"));
    assert!(summary(&schema, "d").ends_with("| c8 > c"), "{}", summary(&schema, "d"));
    assert!(summary(&schema, "b").ends_with("| d1 > c"), "{}", summary(&schema, "b"));
}

#[test]
fn tables_that_number_as_many_rows_are_doubtful() {
    let table = |header: &str| csv(header, 50, |i| format!("{},word {i}", i + 1));
    let text = text_of(&[("a.csv", &table("c1,c2")), ("b.csv", &table("c3,c4"))]);
    assert!(!text.contains("\n  {"), "{text}");
    assert!(text.contains("the rows of both tables may simply be numbered"), "{text}");
}

#[test]
fn references_with_a_few_missing_keys_are_commented_out() {
    let airports = csv("faa,name", 300, |i| format!("{},n{i}", team(i)));
    let flights = csv("flight_id,dest,n", 2000, |i| {
        let dest = if i % 100 < 4 { format!("q{}", i % 100) } else { team(i % 100) };
        format!("{i},{dest},{}", i % 5)
    });
    let other = csv("o_id,at", 500, |i| format!("{i},{}", team(i % 90)));
    let files: &[(&str, &[u8])] =
        &[("airports.csv", &airports), ("flights.csv", &flights), ("others.csv", &other)];
    let text = text_of(files);
    let doubt = "  # { columns = \"dest\", to = \"airports\" }, # doubtful: 4 of 100 values are not \
                 keys there, more than unresolved_share allows; to use it, remove the # before it\n";
    assert!(text.contains(doubt), "{text}");
    // Without the first # the schema is valid, and refers.
    let used = Schema::parse(&text.replace("  # { columns", "  { columns")).unwrap();
    assert_eq!(summary(&used, "flights"), "key flight_id | time - | dest > airports");
}

#[test]
fn nulls_are_allowed_in_references_and_not_in_keys() {
    let makers = csv("c1,c2", 50, |i| format!("maker-{},m{i}", i * 17 % 50));
    let gaps = csv("c3,c4", 50, |i| {
        let key = if i == 3 { String::new() } else { format!("maker-{i}") };
        format!("{key},{i}.5")
    });
    let cars = csv("c5,c6", 400, |i| {
        let maker = if i % 3 == 0 { String::new() } else { format!("maker-{}", i % 50) };
        format!("{maker},{i}.5")
    });
    let schema = schema_of(&[("a.csv", &gaps), ("b.csv", &makers), ("d.csv", &cars)]);
    assert_eq!(summary(&schema, "d"), "key  | time - | c5 > b");
    assert_eq!(summary(&schema, "b"), "key c1 | time - | ");
    assert_eq!(summary(&schema, "a"), "key  | time - | c3 > b");
}

#[test]
fn rows_of_a_hierarchy_refer_to_their_own_table() {
    let kinds = csv("c1,c2,c3,c4", 24, |i| {
        let parent = if i < 4 { String::new() } else { ((i - 4) / 5 + 1).to_string() };
        format!("{},kind {i},{parent},{}", i + 1, i % 5 + 1)
    });
    let schema = schema_of(&[("a.csv", &kinds)]);
    assert_eq!(summary(&schema, "a"), "key c1 | time - | c3 > a");
    let pages = csv("c1,c2,c3", 60, |i| {
        let parent = if i == 0 { String::new() } else { format!("page-{}", i / 2) };
        format!("page-{i},{parent},page-{i}")
    });
    // A copy of the key does not refer.
    assert_eq!(summary(&schema_of(&[("a.csv", &pages)]), "a"), "key c1 | time - | c2 > a");
}

#[test]
fn pairs_refer_to_keys_of_two_columns() {
    let year = |i: u64| 1990 + i / 20;
    let teams = csv("yearID,teamID,wins", 400, |i| {
        format!("{},{},{}", year(i), team(i % 20 + i / 100), i % 9)
    });
    let pay = |wrong: u64| {
        csv("pay,yearID,teamID", 1000, move |n| {
            let i = n * 7 % 400;
            let team = if n < wrong { "zzz".to_owned() } else { team(i % 20 + i / 100) };
            format!("{}.5,{},{team}", n * 31, year(i))
        })
    };
    let schema = schema_of(&[("teams.csv", &teams), ("pay.csv", &pay(0))]);
    assert!(summary(&schema, "teams").starts_with("key yearID+teamID"));
    assert!(summary(&schema, "pay").ends_with("| yearID+teamID > teams"));
    let text = text_of(&[("teams.csv", &teams), ("pay.csv", &pay(30))]);
    let doubt = "  # { columns = [\"yearID\", \"teamID\"], to = \"teams\" }, # doubtful: 30 of 1000 rows \
                 have no key there; with parts from different rows ";
    assert!(text.contains(doubt), "{text}");
}

#[test]
fn pairs_are_found_by_value_but_not_between_facts_of_one_event() {
    let orders = csv("c1,c2", 5000, |i| format!("{},{}.5", i * 3 + 1, i % 7));
    // One line, two or three.
    let lines = csv("c3,c4,c5", 9_996, |i| {
        let place = i as usize % 6;
        let (order, line) = (i / 6 * 3 + [0, 1, 1, 2, 2, 2][place], [1, 1, 2, 1, 2, 3][place]);
        format!("{},{line},{}.5", order * 3 + 1, i % 90)
    });
    let reviews = csv("d1,c6,c7,c8", 6000, |i| {
        let order = i * 7919 % 4998;
        format!("{i}.5,{},{},{}", order * 3 + 1, i / 7 % (order % 3 + 1) + 1, i % 5 + 1)
    });
    let schema = schema_of(&[("a.csv", &orders), ("b.csv", &lines), ("d.csv", &reviews)]);
    assert_eq!(summary(&schema, "b"), "key c3+c4 | time - | c3 > a");
    assert!(summary(&schema, "d").ends_with("| c6 > a, c6+c7 > b"), "{}", summary(&schema, "d"));
    let races = csv("raceId,date", 100, |i| format!("{},2020-03-{:02}", i + 1, i % 28 + 1));
    let drivers = csv("driverId,name", 40, |i| format!("{},d{i}", i + 1));
    let results = |each: u64| {
        csv("raceId,driverId,x", 100 * each, move |i| {
            let race = i / each;
            format!("{},{},{}.5", race + 1, (race + i % each) % 40 + 1, i % 9)
        })
    };
    let schema = schema_of(&[
        ("races.csv", &races),
        ("drivers.csv", &drivers),
        ("grid.csv", &results(20)),
        ("laps.csv", &results(15)),
    ]);
    let expected = "key raceId+driverId | time via raceId | raceId > races, driverId > drivers";
    assert_eq!(summary(&schema, "grid"), expected);
    assert_eq!(summary(&schema, "laps"), expected);
}

#[test]
fn columns_of_many_values_are_compared_by_a_sample() {
    let key = |i: u64| format!("k{:07}", i * 7919 % 10_000_000);
    let things = csv("c1,c2", 30_000, |i| format!("{},{}.5", key(i), i % 9));
    let uses = |wrong: u64| {
        csv("c3,c4", 40_000, move |i| match i < wrong {
            true => format!("none{i},1.5"),
            false => format!("{},2.5", key(i % 20_000)),
        })
    };
    let found = |wrong| text_of(&[("a.csv", &things), ("b.csv", &uses(wrong))]);
    let line = "  { columns = \"c3\", to = \"a\" }, # by its values; ";
    assert!(found(0).contains(&format!("{line}the values of all 40000 rows are keys there\n")));
    assert!(found(80).contains(line));
    let text = found(1000);
    assert!(!text.contains(line) && text.contains("# { columns = \"c3\""), "{text}");
}
