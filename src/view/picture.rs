//! `ContextPicture`: the context of one seed, for text, JSON and the page.

use std::path::Path;
use std::sync::Arc;

use super::context::ContextView;
use super::page;
use crate::error::Result;
use crate::plan::Assignment;
use crate::sampler::{Context, Sampler, Settings, Shape, Speed, Texts};
use crate::store::Store;

/// The context of one seed, with the sampler that collected it.
pub struct ContextPicture {
    sampler: Sampler,
    context: Context,
    view: ContextView,
}

impl ContextPicture {
    /// Collects the context of seed `seed_index` of `task`.
    ///
    /// # Errors
    /// Those of [`Sampler::new`] and [`Sampler::context`].
    pub fn new(
        stores: Vec<Arc<Store>>,
        settings: Settings,
        task: &str,
        seed_index: u32,
    ) -> Result<Self> {
        // One sequence, with the tensors of the page, and without text vectors: the page shows none,
        // and the store may have none.
        let shape = Shape {
            batch_size: 1,
            sequence_buckets: Vec::new(),
            compact: false,
            permutations: true,
            texts: Texts::Global,
            ..settings.shape
        };
        let speed = Speed { threads: Some(1), prefetch: 0 };
        let settings = Settings { shape, ..settings };
        let sampler = Sampler::new(stores, settings, Assignment::new(0, 1)?, speed)?;
        let context = sampler.context(task, seed_index)?;
        let length = sampler.settings().shape.sequence_length;
        let masking = sampler.settings().masks;
        let batch =
            masking.map(|_| sampler.batch_of_seed(&context.task, seed_index)).transpose()?;
        let is_masked = batch.as_ref().and_then(|batch| batch.get("is_masked"));
        let store = store_of(&sampler, &context);
        let view = ContextView::of(store, &context, seed_index, length, is_masked)?;
        Ok(Self { sampler, context, view })
    }

    /// Returns the context as a tree of lines.
    #[must_use]
    pub fn text(&self) -> String {
        self.view.text()
    }

    /// Returns the context for text and JSON.
    pub(crate) fn view(&self) -> &ContextView {
        &self.view
    }

    /// Rejects a path with anything else than a page of headwater.
    ///
    /// # Errors
    /// `InvalidArgument` or `Io`.
    pub(crate) fn check_place(path: &Path) -> Result<()> {
        page::check_place(path)
    }

    /// Draws the context as a page.
    ///
    /// # Errors
    /// `Corrupt` when the store is damaged.
    pub fn page(&self) -> Result<String> {
        let store = store_of(&self.sampler, &self.context);
        page::draw(store, &self.sampler, &self.context, &self.view)
    }

    /// Writes the context to a page, completely or not at all.
    ///
    /// # Errors
    /// Those of [`ContextPicture::check_place`]; `Io` when the disk fails.
    pub(crate) fn write_page(&self, path: &Path) -> Result<()> {
        page::check_place(path)?;
        page::save(path, &self.page()?)
    }
}

fn store_of<'a>(sampler: &'a Sampler, context: &Context) -> &'a Store {
    sampler.stores().nth(context.database).expect("a task has a store")
}
