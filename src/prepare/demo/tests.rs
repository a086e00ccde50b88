use std::collections::BTreeMap;

use super::*;

fn rows(shop: &Shop, table: TableIndex) -> &[Vec<String>] {
    &shop.tables[table as usize].rows
}

fn number(text: &str) -> f64 {
    text.parse().unwrap()
}

/// The area under the ROC curve: the share of pairs of churned and active seeds in correct order.
fn auroc(scored: &[(f64, bool)]) -> f64 {
    let mut sorted = scored.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut ranks, mut positives, mut start) = (0.0, 0.0, 0);
    while start < sorted.len() {
        let end = start + sorted[start..].partition_point(|(score, _)| *score <= sorted[start].0);
        let rank = (start + 1 + end) as f64 / 2.0;
        let found = sorted[start..end].iter().filter(|(_, churned)| *churned).count() as f64;
        ranks += rank * found;
        positives += found;
        start = end;
    }
    let negatives = sorted.len() as f64 - positives;
    (ranks - positives * (positives + 1.0) / 2.0) / (positives * negatives)
}

/// One seed of both tasks, with the predictions of several formulas.
struct Seed {
    split: String,
    churned: bool,
    spent: f64,
    /// From the customer's own past targets.
    own_churn: f64,
    own_spend: f64,
    /// The customer's mean spending in windows with orders.
    own_return: f64,
    /// From whether the latest order came late, and nothing else.
    late: f64,
    /// From the visible rows of the graph.
    graph: f64,
    /// From the hidden probability.
    truth: f64,
}

/// The visible rows of the shop, by what they are looked up.
struct Visible<'a> {
    /// Reviews of each product: time and stars.
    reviews: BTreeMap<&'a str, Vec<(&'a str, f64)>>,
    /// Orders of each customer: time and id.
    orders: BTreeMap<&'a str, Vec<(&'a str, &'a str)>>,
    items: BTreeMap<&'a str, Vec<&'a str>>,
    deliveries: BTreeMap<&'a str, (&'a str, bool)>,
    material: BTreeMap<&'a str, &'a str>,
}

impl<'a> Visible<'a> {
    fn of(shop: &'a Shop) -> Self {
        let mut visible = Self {
            reviews: BTreeMap::new(),
            orders: BTreeMap::new(),
            items: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            material: BTreeMap::new(),
        };
        for row in rows(shop, TableIndex::Reviews) {
            visible.reviews.entry(&row[2]).or_default().push((&row[5], number(&row[6])));
        }
        for row in rows(shop, TableIndex::Orders) {
            visible.orders.entry(&row[1]).or_default().push((&row[3], &row[0]));
        }
        for row in rows(shop, TableIndex::Items) {
            visible.items.entry(&row[0]).or_default().push(&row[2]);
        }
        for row in rows(shop, TableIndex::Deliveries) {
            visible.deliveries.insert(&row[0], (&row[1], row[2] == "true"));
        }
        for row in rows(shop, TableIndex::Products) {
            visible.material.insert(&row[0], &row[4]);
        }
        visible
    }

    /// The expected stars of a product at a time: the mean of its reviews, smoothed towards the
    /// prior of its material.
    fn stars(&self, product: &str, time: &str) -> f64 {
        let material =
            text::MATERIALS.iter().position(|m| *m == self.material[product]).unwrap() as f64;
        let prior = 2.0 + 0.4 * material;
        let own = self.reviews.get(product).into_iter().flatten().filter(|(at, _)| *at < time);
        let (sum, count) = own.fold((0.0, 0.0), |(s, n), (_, stars)| (s + stars, n + 1.0));
        (sum + 2.0 * prior) / (count + 2.0)
    }

    /// The visible quality of the customer's latest order: the mean stars of its products, and
    /// whether it came late.
    fn latest(&self, customer: &str, time: &str) -> (f64, f64) {
        let (_, order) = self.orders[customer].iter().filter(|(at, _)| *at < time).max().unwrap();
        let items = &self.items[order];
        let stars: f64 = items.iter().map(|item| self.stars(item, time)).sum();
        let (arrived, late) = self.deliveries[order];
        let late = if late && arrived < time { 1.0 } else { 0.0 };
        (stars / items.len() as f64, late)
    }
}

fn seeds(shop: &Shop) -> Vec<Seed> {
    let visible = Visible::of(shop);
    let mut past: BTreeMap<&str, [f64; 3]> = BTreeMap::new();
    let both =
        rows(shop, TableIndex::Churn).iter().zip(rows(shop, TableIndex::Spend)).zip(&shop.chances);
    both.map(|((churn, spend), &chance)| {
        assert_eq!(churn[..2], spend[..2]);
        let (churned, spent) = (churn[2] == "true", number(&spend[2]));
        // The seeds of a customer are in the order of their times.
        let [count, stayed_away, sum] = past.entry(&churn[0]).or_default();
        let own_churn = (*stayed_away + 2.0 * 0.4) / (*count + 2.0);
        let own_spend = (*sum + 2.0 * 250.0) / (*count + 2.0);
        let own_return = (*sum + 2.0 * 450.0) / (*count - *stayed_away + 2.0);
        let (stars, late) = visible.latest(&churn[0], &churn[1]);
        let seed = Seed {
            split: churn[3].clone(),
            churned,
            spent,
            own_churn,
            own_spend,
            own_return,
            late,
            graph: 20.0 * own_churn - 20.0 * stars + LATENESS as f64 * late,
            truth: chance as f64,
        };
        *count += 1.0;
        *stayed_away += f64::from(u8::from(churned));
        *sum += spent;
        seed
    })
    .collect()
}

fn in_split<'a>(seeds: &'a [Seed], split: &str) -> Vec<&'a Seed> {
    seeds.iter().filter(|seed| seed.split == split).collect()
}

#[test]
fn the_graph_predicts_better_than_the_customers_own_past() {
    let shop = Shop::generate();
    let seeds = seeds(&shop);
    let test = in_split(&seeds, "test");
    let by = |score: &dyn Fn(&Seed) -> f64| {
        auroc(&test.iter().map(|seed| (score(seed), seed.churned)).collect::<Vec<_>>())
    };
    let scores: [&dyn Fn(&Seed) -> f64; 4] =
        [&|s| s.own_churn, &|s| s.late, &|s| s.graph, &|s| s.truth];
    let churn = scores.map(by);

    // Spending: the customer's spending when active, times the share of active customers in the
    // same tenth of all scores.
    let train = in_split(&seeds, "train");
    let mut edges: Vec<_> = train.iter().map(|seed| seed.graph).collect();
    edges.sort_by(f64::total_cmp);
    let tenth = |seed: &Seed| edges.partition_point(|e| *e < seed.graph) * 10 / (edges.len() + 1);
    let mut counts = [[0.0; 2]; 10];
    train.iter().for_each(|seed| counts[tenth(seed)][usize::from(seed.churned)] += 1.0);
    let returns = |seed: &Seed| {
        let [stayed, left] = counts[tenth(seed)];
        stayed / (stayed + left)
    };
    let mean = train.iter().map(|seed| seed.spent).sum::<f64>() / train.len() as f64;
    // The share of the variance that a prediction explains; that of a constant is at most 0.
    let explained = |guess: &dyn Fn(&Seed) -> f64| {
        let square = |guess: &dyn Fn(&Seed) -> f64| {
            test.iter().map(|seed| (guess(seed) - seed.spent).powi(2)).sum::<f64>()
        };
        1.0 - square(guess) / square(&|_| mean)
    };
    let own_spend = explained(&|s| s.own_spend);
    let graph_spend = explained(&|s| s.own_return * returns(s));
    let truth_spend = explained(&|s| s.own_return * (1.0 - s.truth / 1000.0));
    let counts = ["train", "val", "test"].map(|split| in_split(&seeds, split).len());
    let strength = format!(
        "| nothing | .500 | .000 |\n\
         | the customer's own past targets | {} | {} |\n\
         | whether the latest order came late | {} | |\n\
         | the visible rows: deliveries, products, reviews by others | {} | {} |\n\
         | the hidden probabilities (upper bound) | {} | {} |\n\n\
         Seeds of each task: {} train, {} val, {} test.\n",
        share(churn[0]),
        share(own_spend),
        share(churn[1]),
        share(churn[2]),
        share(graph_spend),
        share(churn[3]),
        share(truth_spend),
        counts[0],
        counts[1],
        counts[2],
    );
    let written = include_str!("SIGNAL.md");
    assert!(written.ends_with(&strength), "SIGNAL.md should end with\n{strength}");
    assert!(churn[0] < 0.65 && churn[2] > 0.85 && churn[3] < 0.95);
}

/// Formats a number below one with three digits.
fn share(value: f64) -> String {
    format!("{value:.3}").trim_start_matches('0').to_owned()
}

#[test]
fn days_have_the_correct_dates() {
    for (day, date) in [
        (0, "2020-01-01"),
        (59, "2020-02-29"),
        (60, "2020-03-01"),
        (365, "2020-12-31"),
        (366, "2021-01-01"),
        (1439, "2023-12-10"),
        (1520, "2024-02-29"),
    ] {
        assert_eq!(text::date(day), date);
    }
}
