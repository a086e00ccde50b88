//! Names, texts and dates of the demo shop.

use super::random::Draws;

pub(super) const MATERIALS: [&str; 5] = ["paper", "plastic", "cotton", "oak", "steel"];
pub(super) const COUNTRIES: [&str; 8] =
    ["Chile", "Estonia", "Ghana", "Italy", "Japan", "Kenya", "Norway", "Peru"];
pub(super) const CITIES: [&str; 12] = [
    "Arles", "Bergen", "Cadiz", "Delft", "Evora", "Faro", "Ghent", "Hull", "Izmir", "Jena",
    "Krakow", "Lund",
];
pub(super) const CHANNELS: [&str; 4] = ["app", "phone", "shop", "web"];
pub(super) const CARRIERS: [&str; 6] =
    ["Falcon Freight", "Harbour Post", "Milk Run", "Old Mule", "Parcel & Sons", "Slow Boat"];
pub(super) const DEPARTMENTS: [&str; 4] = ["Garden", "Home", "Office", "Play"];

const KINDS: [[&str; 5]; 4] = [
    ["Benches", "Lanterns", "Pots", "Shears", "Sheds"],
    ["Blankets", "Kettles", "Lamps", "Mirrors", "Shelves"],
    ["Binders", "Desks", "Folders", "Pens", "Stools"],
    ["Blocks", "Kites", "Puzzles", "Swings", "Trains"],
];
const QUALITIES: [&str; 10] = [
    "Bright", "Folding", "Grand", "Humble", "Little", "Patient", "Quiet", "Round", "Sturdy", "Tall",
];
const NAMES: [&str; 12] = [
    "Ada", "Bruno", "Chiara", "Dmitri", "Esi", "Farid", "Greta", "Hugo", "Ines", "Jun", "Kofi",
    "Lena",
];
const FAMILIES: [&str; 12] = [
    "Abara",
    "Brandt",
    "Costa",
    "Dahl",
    "Eriksen",
    "Fontana",
    "Garcia",
    "Haas",
    "Ito",
    "Jansen",
    "Kowal",
    "Lindqvist",
];
const PRAISE: [[&str; 4]; 5] = [
    ["broke on the first day", "a great disappointment", "never again", "sent it back, twice"],
    ["rather poor", "thinner than it looks", "not what I hoped for", "creaks a little"],
    ["does what it should", "neither good nor bad", "fair for the price", "it will do"],
    ["well made", "better than expected", "a solid piece", "we use it every day"],
    ["simply wonderful", "the best I ever had", "will last for years", "bought another at once"],
];
const OPENINGS: [&str; 5] = ["Honestly,", "My verdict:", "After a week:", "In short,", "For us,"];

/// Returns the name of category `kind` of a department.
pub(super) fn kind(department: usize, kind: usize) -> &'static str {
    KINDS[department][kind]
}

pub(super) fn product(draws: &mut Draws, kind: &str, number: usize) -> String {
    format!("{} {kind} No. {number}", draws.pick(&QUALITIES))
}

pub(super) fn person(draws: &mut Draws) -> String {
    format!("{} {}", draws.pick(&NAMES), draws.pick(&FAMILIES))
}

pub(super) fn company(draws: &mut Draws, number: usize) -> String {
    let ending = draws.pick(&["& Co.", "Brothers", "Ltd", "Works"]);
    format!("{} {ending} {number}", draws.pick(&FAMILIES))
}

/// Returns the text of a review with this number of stars.
pub(super) fn review(draws: &mut Draws, stars: u64) -> String {
    let phrases = &PRAISE[stars as usize - 1];
    let (first, second) = (draws.pick(phrases), draws.pick(phrases));
    match first == second {
        true => format!("{} {first}.", draws.pick(&OPENINGS)),
        false => format!("{} {first}, {second}.", draws.pick(&OPENINGS)),
    }
}

/// Returns the date that is `day` days after 2020-01-01.
pub(super) fn date(day: u64) -> String {
    let (mut year, mut rest) = (2020, day);
    loop {
        let days = if year % 4 == 0 { 366 } else { 365 };
        if rest < days {
            break;
        }
        rest -= days;
        year += 1;
    }
    let february = if year % 4 == 0 { 29 } else { 28 };
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if rest < days {
            break;
        }
        rest -= days;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", rest + 1)
}

/// Returns a time on a day, between 08:00 and 20:00.
pub(super) fn time(draws: &mut Draws, day: u64) -> String {
    let second = 8 * 3600 + draws.below(12 * 3600);
    format!("{} {:02}:{:02}:{:02}", date(day), second / 3600, second / 60 % 60, second % 60)
}

/// Formats cents as a decimal number.
pub(super) fn money(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}
