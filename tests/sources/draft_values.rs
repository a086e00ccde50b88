//! Values that are nearly what they look like, as a draft remarks on them.

use super::draft::{csv, drafted};
use super::*;

#[test]
fn numbers_with_a_decimal_comma_are_said_to_look_like_numbers() {
    let rows = csv("id;price;n", 90, |i| format!("{i};{i},5;{i}.5"));
    let folder = folder(&[("things.csv", &rows)]);
    let text = drafted(&*opened(folder.path())).render();
    let price =
        "price = \"text\" # looks like numbers with a decimal comma; rewrite with a point\n";
    assert!(text.contains(price) && text.contains("n = \"numerical\"\n"), "{text}");
}
