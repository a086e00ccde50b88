//! Drafted questions: commented out, at most five, and right as they are.

use headwater::prepare::demo::demo_data;
use headwater::prepare::draft::draft;
use headwater::prepare::schema::{Schema, What};
use headwater::prepare::source;

/// Returns the drafted file of the demo shop, without the tasks that it has as tables.
fn drafted(cell_tasks: bool) -> String {
    let folder = tempfile::tempdir().unwrap();
    demo_data(folder.path()).unwrap();
    for task in ["churn", "spend"] {
        std::fs::remove_file(folder.path().join(format!("task_{task}.csv"))).unwrap();
    }
    let source = source::open(folder.path()).unwrap();
    let drafted = draft(&*source, "shop", &|_| Ok(())).unwrap();
    if cell_tasks { drafted.render() } else { drafted.without_cell_tasks().render() }
}

/// Removes the # before the lines of the questions.
fn uncommented(text: &str) -> String {
    let (tables, questions) = text.split_once("# Questions that").unwrap();
    let uncomment = |line: &str| match line.strip_prefix("# ") {
        Some(rest) if !rest.contains('?') && !rest.contains("remove the #") => format!("{rest}\n"),
        _ => format!("{line}\n"),
    };
    format!("{tables}# {}", questions.lines().map(uncomment).collect::<String>())
}

#[test]
fn questions_are_comments_until_somebody_asks_them() {
    let text = drafted(false);
    let schema = Schema::parse(&text).unwrap();
    assert!(schema.tasks.is_empty(), "{:?}", schema.tasks);
    let asked = Schema::parse(&uncommented(&text)).unwrap().with_declared_tasks().unwrap();
    let names: Vec<_> = asked.tasks.iter().map(|task| task.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "customers-orders-exists",
            "customers-orders-count",
            "products-order_items-exists",
            "products-order_items-quantity",
            "customers-orders-channel",
        ]
    );
    let predict = asked.tasks[0].predict.as_ref().unwrap();
    assert_eq!((predict.horizon.to_string().as_str(), predict.of.as_str()), ("90 days", "orders"));
    assert!(text.contains("At most 16800 seeds: 1200 rows, asked about up to 14 times"), "{text}");
}

#[test]
fn cells_are_tasks_only_where_they_are_asked_for() {
    let count = |cell_tasks| Schema::parse(&drafted(cell_tasks)).unwrap().tasks.len();
    assert_eq!(count(false), 0);
    assert!(count(true) > 10);
}

/// Returns the drafted file of racers with a result on each of some days, `hours` apart.
fn drafted_races(hours: i64, columns: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let racers: String = (0..60).map(|id| format!("{id},c{}\n", id % 3)).collect();
    std::fs::write(folder.path().join("racers.csv"), format!("id,club\n{racers}")).unwrap();
    let rows = (0..600_i64).map(|row| {
        let at = 1_600_000_000 + row / 4 * hours * 3600;
        format!("{row},{},{at},{},{},{}\n", row % 60, row % 97, row % 13 + 1, row * row % 89)
    });
    let rows: String = rows.collect();
    let text = format!("id,racer_id,at,{columns}\n{rows}");
    std::fs::write(folder.path().join("results.csv"), text).unwrap();
    let source = source::open(folder.path()).unwrap();
    draft(&*source, "races", &|_| Ok(())).unwrap().without_cell_tasks().render()
}

#[test]
fn a_rank_is_asked_for_its_mean_and_a_number_that_is_a_name_not_at_all() {
    let text = drafted_races(24, "racerNumber,position,points");
    let asked = Schema::parse(&uncommented(&text)).unwrap();
    let of_number = asked.tasks.iter().filter_map(|task| task.predict.as_ref());
    let of_number: Vec<_> = of_number.filter(|predict| predict.column.is_some()).collect();
    let asked: Vec<_> = of_number.iter().map(|p| (p.what, p.column.as_deref().unwrap())).collect();
    assert_eq!(asked, [(What::Mean, "position")], "{text}");
    let text = drafted_races(24, "racerNumber,startNumber,points");
    assert!(text.contains("# what = \"sum\"") && text.contains("# column = \"points\""), "{text}");
}

#[test]
fn without_room_for_the_usual_horizon_a_shorter_one_is_asked_about_or_a_comment_tells_why() {
    // 10 results of each racer within 149 days: 15 days from one to the next, and 22 for test.
    let text = drafted_races(24, "a,position,points");
    assert!(text.contains("# horizon = \"1 week\""), "{text}");
    // Within 12 days val and test have less than two days each.
    let text = drafted_races(2, "a,position,points");
    assert!(!text.contains("# [task.predict]"), "{text}");
    assert!(
        text.contains("# No question was drafted: the rows of \"results\" are of 12 days"),
        "{text}"
    );
    Schema::parse(&text).unwrap();
}
