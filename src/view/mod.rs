//! Contexts and rows as text; contexts and audits as HTML pages.

#[cfg(feature = "cli")]
pub(crate) mod audit_page;
#[cfg(feature = "cli")]
mod cell;
#[cfg(feature = "cli")]
mod context;
#[cfg(feature = "cli")]
mod page;
#[cfg(feature = "cli")]
mod picture;
#[cfg(feature = "cli")]
mod relation;
#[cfg(feature = "cli")]
mod row;
#[cfg(feature = "cli")]
mod table;
#[cfg(feature = "cli")]
mod task;
#[cfg(feature = "cli")]
mod tokens;
pub(crate) mod words;

#[cfg(feature = "cli")]
pub use {
    cell::time_text, page::save as save_page, picture::ContextPicture, table::time_words,
    task::Splits, task::TaskView, tokens::TokenPicture,
};
#[cfg(feature = "cli")]
pub(crate) use {page::check_place as check_page_place, row::RowView};
