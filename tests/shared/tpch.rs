//! The eight tables of TPC-H at scale .01, with its keys and domains and words of its own.

use headwater::random::{Purpose, Stream};

/// A table: its name, its columns and its rows of texts.
pub(crate) type Table = (&'static str, &'static [&'static str], Vec<Vec<String>>);

const PARTS: u64 = 2000;
const SUPPLIERS: u64 = 100;
const CUSTOMERS: u64 = 1500;
const ORDERS: u64 = 15_000;

/// The references, as `table(columns) > table(columns)`.
pub(crate) const REFERENCES: [&str; 10] = [
    "nation(n_regionkey) > region(r_regionkey)",
    "supplier(s_nationkey) > nation(n_nationkey)",
    "customer(c_nationkey) > nation(n_nationkey)",
    "partsupp(ps_partkey) > part(p_partkey)",
    "partsupp(ps_suppkey) > supplier(s_suppkey)",
    "orders(o_custkey) > customer(c_custkey)",
    "lineitem(l_orderkey) > orders(o_orderkey)",
    "lineitem(l_partkey) > part(p_partkey)",
    "lineitem(l_suppkey) > supplier(s_suppkey)",
    "lineitem(l_partkey, l_suppkey) > partsupp(ps_partkey, ps_suppkey)",
];

const WORDS: [&str; 12] = [
    "furious", "sly", "careful", "blithe", "quick", "fluffy", "slow", "quiet", "ruthless", "thin",
    "close", "dogged",
];

/// Draws the values of the tables.
struct Draws(Stream);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    fn from(&mut self, low: u64, high: u64) -> String {
        (low + self.below(high - low + 1)).to_string()
    }

    fn word(&mut self) -> &'static str {
        WORDS[self.below(WORDS.len() as u64) as usize]
    }

    fn comment(&mut self) -> String {
        format!("{} {} {} {}", self.word(), self.word(), self.word(), self.below(100_000))
    }

    fn money(&mut self, most: u64) -> String {
        format!("{}.{:02}", self.below(most), self.below(100))
    }

    fn phone(&mut self) -> String {
        let country = self.from(10, 34);
        format!(
            "{country}-{}-{}-{}",
            self.from(100, 999),
            self.from(100, 999),
            self.from(1000, 9999)
        )
    }

    fn day(&mut self) -> (u64, u64, u64) {
        (1992 + self.below(7), 1 + self.below(12), 1 + self.below(28))
    }
}

fn date((year, month, day): (u64, u64, u64)) -> String {
    format!("{year}-{month:02}-{day:02}")
}

/// Returns the supplier of a part, `place` from 0 to 3, by the formula of the specification.
fn supplier(part: u64, place: u64) -> u64 {
    (part + place * (SUPPLIERS / 4 + (part - 1) / SUPPLIERS)) % SUPPLIERS + 1
}

/// Returns the tables, the same at each call.
pub(crate) fn tables() -> Vec<Table> {
    let mut draws = Draws(Stream::new(7, Purpose::Split, [0x7bc4, 0, 0]));
    let mut tables = places(&mut draws);
    tables.extend(goods(&mut draws));
    tables.extend(sales(&mut draws));
    tables
}

fn places(draws: &mut Draws) -> Vec<Table> {
    let regions = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"].iter().enumerate();
    let region = regions.map(|(i, n)| vec![i.to_string(), (*n).into(), draws.comment()]).collect();
    let of_region = [0, 1, 1, 1, 4, 0, 3, 3, 2, 2, 4, 4, 2, 4, 0, 0, 0, 1, 2, 3, 4, 2, 3, 3, 1];
    let nation = (of_region.iter().enumerate())
        .map(|(i, r)| vec![i.to_string(), format!("NATION {i:02}"), r.to_string(), draws.comment()])
        .collect();
    let mut person = |kind: &str, count: u64, segment: bool| -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for key in 1..=count {
            let mut row = vec![key.to_string(), format!("{kind}#{key:09}")];
            row.push(format!("{} {}", draws.below(1 << 40), draws.word()));
            row.extend([draws.from(0, 24), draws.phone(), draws.money(10_000)]);
            row.extend(segment.then(|| draws.word().to_uppercase()));
            row.push(draws.comment());
            rows.push(row);
        }
        rows
    };
    let supplier = person("Supplier", SUPPLIERS, false);
    let customer = person("Customer", CUSTOMERS, true);
    vec![
        ("region", &["r_regionkey", "r_name", "r_comment"], region),
        ("nation", &["n_nationkey", "n_name", "n_regionkey", "n_comment"], nation),
        (
            "supplier",
            &[
                "s_suppkey",
                "s_name",
                "s_address",
                "s_nationkey",
                "s_phone",
                "s_acctbal",
                "s_comment",
            ],
            supplier,
        ),
        (
            "customer",
            &[
                "c_custkey",
                "c_name",
                "c_address",
                "c_nationkey",
                "c_phone",
                "c_acctbal",
                "c_mktsegment",
                "c_comment",
            ],
            customer,
        ),
    ]
}

fn goods(draws: &mut Draws) -> Vec<Table> {
    let mut part = Vec::new();
    let mut partsupp = Vec::new();
    for key in 1..=PARTS {
        let brand = draws.from(11, 55);
        part.push(vec![
            key.to_string(),
            format!("{} {} {}", draws.word(), draws.word(), draws.below(100_000)),
            format!("Manufacturer#{}", draws.from(1, 5)),
            format!("Brand#{brand}"),
            format!("{} {}", draws.word().to_uppercase(), draws.word().to_uppercase()),
            draws.from(1, 50),
            format!("{} CASE", draws.word().to_uppercase()),
            draws.money(2000),
            draws.comment(),
        ]);
        for place in 0..4 {
            partsupp.push(vec![
                key.to_string(),
                supplier(key, place).to_string(),
                draws.from(1, 9999),
                draws.money(1000),
                draws.comment(),
            ]);
        }
    }
    vec![
        (
            "part",
            &[
                "p_partkey",
                "p_name",
                "p_mfgr",
                "p_brand",
                "p_type",
                "p_size",
                "p_container",
                "p_retailprice",
                "p_comment",
            ],
            part,
        ),
        (
            "partsupp",
            &["ps_partkey", "ps_suppkey", "ps_availqty", "ps_supplycost", "ps_comment"],
            partsupp,
        ),
    ]
}

fn sales(draws: &mut Draws) -> Vec<Table> {
    let (mut orders, mut lines) = (Vec::new(), Vec::new());
    for number in 0..ORDERS {
        // The first 8 of each 32 keys.
        let key = (number / 8 * 32 + number % 8 + 1).to_string();
        let customer = loop {
            let customer = 1 + draws.below(CUSTOMERS);
            if !customer.is_multiple_of(3) {
                break customer;
            }
        };
        let day = draws.day();
        for line in 0..=draws.below(7) {
            let part = 1 + draws.below(PARTS);
            let place = draws.below(4);
            lines.push(vec![
                key.clone(),
                part.to_string(),
                supplier(part, place).to_string(),
                (line + 1).to_string(),
                draws.from(1, 50),
                draws.money(100_000),
                format!("0.{:02}", draws.below(11)),
                format!("0.{:02}", draws.below(9)),
                ["A", "N", "R"][draws.below(3) as usize].into(),
                ["F", "O"][draws.below(2) as usize].into(),
                date((day.0, day.1, 28)),
                date(draws.day()),
                date((day.0 + 1, 1, day.2)),
                draws.word().to_uppercase(),
                ["AIR", "RAIL", "SHIP", "MAIL"][draws.below(4) as usize].into(),
                draws.comment(),
            ]);
        }
        orders.push(vec![
            key,
            customer.to_string(),
            ["F", "O", "P"][draws.below(3) as usize].into(),
            draws.money(500_000),
            date(day),
            format!("{}-{}", draws.from(1, 5), draws.word().to_uppercase()),
            format!("Clerk#{:09}", 1 + draws.below(10)),
            "0".into(),
            draws.comment(),
        ]);
    }
    vec![
        (
            "orders",
            &[
                "o_orderkey",
                "o_custkey",
                "o_orderstatus",
                "o_totalprice",
                "o_orderdate",
                "o_orderpriority",
                "o_clerk",
                "o_shippriority",
                "o_comment",
            ],
            orders,
        ),
        (
            "lineitem",
            &[
                "l_orderkey",
                "l_partkey",
                "l_suppkey",
                "l_linenumber",
                "l_quantity",
                "l_extendedprice",
                "l_discount",
                "l_tax",
                "l_returnflag",
                "l_linestatus",
                "l_shipdate",
                "l_commitdate",
                "l_receiptdate",
                "l_shipinstruct",
                "l_shipmode",
                "l_comment",
            ],
            lines,
        ),
    ]
}
