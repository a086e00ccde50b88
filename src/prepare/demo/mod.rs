//! Generates a deterministic shop with a planted relational signal, for examples and tests.
//!
//! About 1,200 customers order from 600 products over four years. Every product has a hidden
//! quality from its material, its supplier and chance; reviews by its buyers show the quality with
//! noise. Every carrier has a hidden punctuality that differs by city; deliveries show it. Time is
//! divided into windows of 60 days. A customer whose last order had good products and came in time
//! orders again in the next window; otherwise the customer stays away, and returns at a random
//! time. Patience differs a little between customers.
//!
//! The task `churn` predicts which customers of the last window stay away in the next; the task
//! `spend` predicts how much each customer spends in it. The tables contain what then happens. Both
//! tasks have recorded splits, by time.
//!
//! # How strong the signal is
//!
#![doc = include_str!("SIGNAL.md")]

mod random;
#[cfg(test)]
mod tests;
mod text;

use std::path::Path;

use crate::error::{Context, Error, Result};
use random::Draws;

const CUSTOMERS: u64 = 1200;
const PRODUCTS: u64 = 600;
const SUPPLIERS: u64 = 60;
/// Windows of 60 days: 1,440 days from the first day of 2020.
const WINDOWS: u64 = 24;
const WINDOW_DAYS: u64 = 60;
/// The first window with seeds; the windows before are history.
const FIRST_SEEDS: u64 = 4;
/// The first windows of the validation split and of the test split.
const FIRST_VAL: u64 = 16;
const FIRST_TEST: u64 = 19;

/// How often, per mille, each carrier is late in its preferred cities; thrice that elsewhere.
const LATE: [u64; 6] = [20, 40, 80, 130, 190, 300];
/// The quality that each material adds to a product.
const MATERIAL: [u64; 5] = [0, 8, 16, 24, 32];
/// The score that a late delivery subtracts from an order.
const LATENESS: i64 = 32;
/// The score at which a customer stays away with probability one half.
const UNDECIDED: i64 = 36;
/// The probability per mille by which each point of the score makes staying away less likely.
const STEEPNESS: i64 = 22;

/// The schema that goes with the tables, corrected by hand.
const SCHEMA: &str = include_str!("schema.toml");

/// The tables that `demo_data` has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemoData {
    /// The name and the number of rows of each table, by name.
    pub tables: Vec<(String, u64)>,
}

/// Writes the demo shop into `folder`: a CSV file for each table and task, and `schema.toml`.
///
/// Creates the folder if it does not exist, and replaces files of the same names.
///
/// # Determinism
/// The same bytes everywhere and every time.
///
/// # Errors
/// `Io` when a file cannot be written.
pub fn demo_data(folder: &Path) -> Result<DemoData> {
    std::fs::create_dir_all(folder).map_err(|e| Error::io(folder, "creating", e))?;
    let shop = Shop::generate();
    let mut tables = Vec::new();
    for table in shop.tables {
        let path = folder.join(format!("{}.csv", table.name));
        table.write(&path).context(|| format!("table {:?}", table.name))?;
        tables.push((table.name.to_owned(), table.rows.len() as u64));
    }
    let path = folder.join("schema.toml");
    std::fs::write(&path, SCHEMA).map_err(|e| Error::io(&path, "writing", e))?;
    tables.sort();
    Ok(DemoData { tables })
}

/// A table of texts.
struct Table {
    name: &'static str,
    header: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

impl Table {
    fn write(&self, path: &Path) -> Result<()> {
        let fail = |e: csv::Error| Error::io(path, "writing", std::io::Error::other(e));
        let mut writer = csv::Writer::from_path(path).map_err(fail)?;
        writer.write_record(self.header).map_err(fail)?;
        for row in &self.rows {
            writer.write_record(row).map_err(fail)?;
        }
        writer.flush().map_err(|e| Error::io(path, "writing", e))
    }
}

/// The position of each table in the shop.
#[derive(Clone, Copy)]
enum TableIndex {
    Categories,
    Suppliers,
    Products,
    Carriers,
    Customers,
    Orders,
    Items,
    Deliveries,
    Reviews,
    Churn,
    Spend,
}

const TABLES: [(&str, &[&str]); 11] = [
    ("categories", &["id", "name", "parent_id"]),
    ("suppliers", &["id", "name", "country"]),
    (
        "products",
        &["id", "name", "category_id", "supplier_id", "material", "price", "weight_kg", "fragile"],
    ),
    ("carriers", &["id", "name", "express"]),
    ("customers", &["id", "name", "city", "birth_year", "newsletter", "signed_up"]),
    ("orders", &["id", "customer_id", "carrier_id", "placed_at", "channel", "gift"]),
    ("order_items", &["order_id", "line", "product_id", "quantity", "discount_percent"]),
    ("deliveries", &["order_id", "delivered_at", "late"]),
    (
        "reviews",
        &["id", "customer_id", "product_id", "order_id", "line", "written_at", "stars", "words"],
    ),
    ("task_churn", &["customer_id", "obs_time", "churned", "split"]),
    ("task_spend", &["customer_id", "obs_time", "spent", "split"]),
];

/// A product's price in cents, and its hidden quality.
struct Product {
    cents: u64,
    quality: u64,
}

/// A customer with hidden attributes.
struct Customer {
    id: u64,
    city: u64,
    department: u64,
    patience: i64,
    appetite: u64,
    first_window: u64,
}

/// The shop and its history.
struct Shop {
    tables: Vec<Table>,
    products: Vec<Product>,
    /// The probability per mille of staying away, for each seed: the best possible prediction.
    #[cfg(test)]
    chances: Vec<u64>,
}

impl Shop {
    fn generate() -> Self {
        let table = |(name, header)| Table { name, header, rows: vec![] };
        let mut shop = Self {
            tables: TABLES.map(table).into(),
            products: vec![],
            #[cfg(test)]
            chances: vec![],
        };
        shop.add_catalogue();
        let customers: Vec<_> = (0..CUSTOMERS).map(|number| shop.add_customer(number)).collect();
        for customer in customers {
            shop.add_history(&customer);
        }
        shop
    }

    fn add(&mut self, table: TableIndex, row: Vec<String>) {
        self.tables[table as usize].rows.push(row);
    }

    fn next_id(&self, table: TableIndex) -> String {
        (self.tables[table as usize].rows.len() + 1).to_string()
    }

    /// Adds categories, suppliers, products and carriers.
    fn add_catalogue(&mut self) {
        for department in text::DEPARTMENTS {
            let id = self.next_id(TableIndex::Categories);
            self.add(TableIndex::Categories, vec![id, department.into(), String::new()]);
        }
        for place in 0..20 {
            let (department, kind) = (place / 5, place % 5);
            let id = self.next_id(TableIndex::Categories);
            let parent = (department + 1).to_string();
            self.add(TableIndex::Categories, vec![id, text::kind(department, kind).into(), parent]);
        }
        let mut skill = Vec::new();
        for number in 0..SUPPLIERS {
            let mut draws = Draws::new(1, number);
            skill.push(draws.below(36));
            let id = self.next_id(TableIndex::Suppliers);
            let name = text::company(&mut draws, number as usize + 1);
            let country = draws.pick(&text::COUNTRIES).to_owned();
            self.add(TableIndex::Suppliers, vec![id, name, country]);
        }
        for number in 0..PRODUCTS {
            self.add_product(number, &skill);
        }
        for (number, name) in text::CARRIERS.into_iter().enumerate() {
            let id = self.next_id(TableIndex::Carriers);
            self.add(TableIndex::Carriers, vec![id, name.into(), (number % 2 == 0).to_string()]);
        }
    }

    fn add_product(&mut self, number: u64, skill: &[u64]) {
        let mut draws = Draws::new(2, number);
        let (category, material) = (number % 20, draws.below(5));
        let supplier = draws.below(SUPPLIERS);
        let quality = MATERIAL[material as usize] + skill[supplier as usize] + draws.below(32);
        let cents = 500 + draws.below(100) * draws.below(100) * 2;
        let kind = text::kind(category as usize / 5, category as usize % 5);
        let weight = match draws.chance(100) {
            true => String::new(),
            false => text::money(draws.below(3000) + 10),
        };
        let row = vec![
            self.next_id(TableIndex::Products),
            text::product(&mut draws, kind, number as usize + 1),
            (category + 5).to_string(),
            (supplier + 1).to_string(),
            text::MATERIALS[material as usize].into(),
            text::money(cents),
            weight,
            draws.chance(250).to_string(),
        ];
        self.add(TableIndex::Products, row);
        self.products.push(Product { cents, quality });
    }

    fn add_customer(&mut self, number: u64) -> Customer {
        let mut draws = Draws::new(3, number);
        let first_window = draws.below(16).saturating_sub(6);
        let city = draws.below(12);
        let customer = Customer {
            id: number + 1,
            city,
            department: draws.below(4),
            patience: draws.below(33) as i64 - 16,
            appetite: draws.below(4),
            first_window,
        };
        let birth = match draws.chance(200) {
            true => String::new(),
            false => (1940 + draws.below(65)).to_string(),
        };
        let row = vec![
            customer.id.to_string(),
            text::person(&mut draws),
            text::CITIES[city as usize].into(),
            birth,
            draws.chance(400).to_string(),
            text::date(first_window * WINDOW_DAYS),
        ];
        self.add(TableIndex::Customers, row);
        customer
    }

    /// Adds the orders and the seeds of a customer.
    fn add_history(&mut self, customer: &Customer) {
        let mut draws = Draws::new(4, customer.id);
        // The score of the last order.
        let mut last_score: Option<i64> = None;
        let mut was_active = false;
        for window in customer.first_window..WINDOWS {
            let chance = match last_score {
                None => 0,
                Some(score) if was_active => {
                    let away = 500 + (UNDECIDED - score - customer.patience) * STEEPNESS;
                    away.clamp(30, 970) as u64
                }
                Some(_) => 500,
            };
            let stays_away = draws.chance(chance);
            let has_seed = was_active && window >= FIRST_SEEDS;
            let mut spent = 0;
            if !stays_away {
                let orders = 1 + draws.below(2);
                for number in 0..orders {
                    // In order, and early enough to arrive within the window.
                    let day = number * (44 / orders) + draws.below(44 / orders);
                    let day = window * WINDOW_DAYS + day;
                    let (score, cents) = self.add_order(customer, day, &mut draws);
                    last_score = Some(score);
                    spent += cents;
                }
            }
            if has_seed {
                let seed = |target: String| {
                    let time = text::date(window * WINDOW_DAYS);
                    vec![customer.id.to_string(), time, target, split(window).into()]
                };
                #[cfg(test)]
                self.chances.push(chance);
                self.add(TableIndex::Churn, seed(stays_away.to_string()));
                self.add(TableIndex::Spend, seed(text::money(spent)));
            }
            was_active = !stays_away;
        }
    }

    /// Adds an order; returns its score and its cost.
    fn add_order(&mut self, customer: &Customer, day: u64, draws: &mut Draws) -> (i64, u64) {
        let order = self.next_id(TableIndex::Orders);
        let carrier = draws.below(6);
        let row = vec![
            order.clone(),
            customer.id.to_string(),
            (carrier + 1).to_string(),
            text::time(draws, day),
            draws.pick(&text::CHANNELS).into(),
            draws.chance(120).to_string(),
        ];
        self.add(TableIndex::Orders, row);
        let is_preferred = (carrier + customer.city).is_multiple_of(3);
        let late = draws.chance(LATE[carrier as usize] * if is_preferred { 1 } else { 3 });
        let arrival = day + 2 + draws.below(4) + if late { 4 + draws.below(6) } else { 0 };
        let row = vec![order.clone(), text::time(draws, arrival), late.to_string()];
        self.add(TableIndex::Deliveries, row);
        let lines = 1 + draws.below(3);
        let (mut quality, mut cents) = (0, 0);
        for line in 1..=lines {
            let (line_quality, cost) = self.add_item(customer, &order, line, arrival, draws);
            quality += line_quality;
            cents += cost;
        }
        let score = (quality / lines) as i64 - if late { LATENESS } else { 0 };
        (score, cents)
    }

    /// Adds a line of an order, and sometimes a review; returns the product's quality and the price
    /// paid.
    fn add_item(
        &mut self,
        customer: &Customer,
        order: &str,
        line: u64,
        arrival: u64,
        draws: &mut Draws,
    ) -> (u64, u64) {
        // Products take their categories in turn; customers prefer one department.
        let shelf = draws.below(PRODUCTS / 20) * 20;
        let department = if draws.chance(600) { customer.department } else { draws.below(4) };
        let product = shelf + department * 5 + draws.below(5);
        let Product { cents, quality } = self.products[product as usize];
        let quantity = 1 + draws.below(1 + 2 * customer.appetite);
        let discount = if draws.chance(700) { 0 } else { 5 * (1 + draws.below(4)) };
        let shown = if discount == 0 { String::new() } else { discount.to_string() };
        let product_id = (product + 1).to_string();
        let row = vec![
            order.to_owned(),
            line.to_string(),
            product_id.clone(),
            quantity.to_string(),
            shown,
        ];
        self.add(TableIndex::Items, row);
        if draws.chance(250) {
            let noise = draws.below(31);
            let stars = ((quality + noise).saturating_sub(15) / 20 + 1).min(5);
            let words = match draws.chance(100) {
                true => String::new(),
                false => text::review(draws, stars),
            };
            let day = arrival + 1 + draws.below(20);
            let row = vec![
                self.next_id(TableIndex::Reviews),
                customer.id.to_string(),
                product_id,
                order.to_owned(),
                line.to_string(),
                text::time(draws, day),
                stars.to_string(),
                words,
            ];
            self.add(TableIndex::Reviews, row);
        }
        (quality, quantity * cents * (100 - discount) / 100)
    }
}

/// Returns the split of a seed at the beginning of `window`.
fn split(window: u64) -> &'static str {
    match window {
        FIRST_TEST.. => "test",
        FIRST_VAL.. => "val",
        _ => "train",
    }
}
