//! The options `--max-rows` and `--child-width` of the commands that collect contexts.

use crate::sampler::{Children, Settings, Walk};

/// Returns the help of `--max-rows`.
pub(super) fn max_rows_help() -> String {
    format!("The most rows of a context [default: {}]", Settings::default().shape.max_rows)
}

/// Returns the help of `--child-width`.
pub(super) fn child_width_help() -> String {
    format!(
        "The most children that a row brings in through one relation [default: {}]",
        default_child_width()
    )
}

/// Returns the default walk, with another child width if one is given.
pub(super) fn walk(child_width: Option<u32>) -> Walk {
    Walk::Priority {
        child_width: child_width.unwrap_or_else(default_child_width),
        children: Children::Uniform,
    }
}

fn default_child_width() -> u32 {
    match Settings::default().walk {
        Walk::Priority { child_width, .. } => child_width,
        Walk::Breadth { .. } => unreachable!("the default walk is by priority"),
    }
}
