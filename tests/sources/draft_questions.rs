//! Drafted questions: commented out, at most five, and right as they are.

use headwater::prepare::demo::demo_data;
use headwater::prepare::draft::draft;
use headwater::prepare::schema::Schema;
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
