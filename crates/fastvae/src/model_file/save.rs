//! Writing a model.

use std::path::Path;

use crate::data::{IdMap, Interactions, Titles};
use crate::error::Result;
use crate::model_file::model::Model;
use crate::model_file::tensors::TensorWriter;
use crate::model_file::{FORMAT, KIND};

impl Model {
    /// Writes the model to `path`, which appears whole or not at all. Parameters are streamed; nothing is copied.
    ///
    /// # Errors
    /// [`crate::Error::Io`] if the disk refuses.
    ///
    /// # Panics
    /// Never: a description is always JSON.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.write(path.as_ref(), self.users.as_deref())
    }

    /// As [`Model::save`], without the histories of the training users.
    ///
    /// # Errors
    /// As [`Model::save`].
    pub fn save_without_users(&self, path: impl AsRef<Path>) -> Result<()> {
        self.write(path.as_ref(), None)
    }

    fn write(&self, path: &Path, users: Option<&Interactions>) -> Result<()> {
        let description = serde_json::to_string(&self.description).expect("a description is JSON");
        let parameters = self.parameters();
        let mut writer = TensorWriter::new();
        writer
            .metadata("kind", KIND)
            .metadata("format", FORMAT.to_string())
            .metadata("description", description)
            .matrix("encoder", parameters.encoder)
            .array("hidden_bias", parameters.hidden_bias)
            .matrix("head", parameters.head)
            .array("head_bias", parameters.head_bias)
            .matrix("items", parameters.items.vectors)
            .array("item_counts", &self.item_counts);
        if let Some(map) = parameters.encoder_map {
            writer.matrix("encoder_map", map);
        }
        if let Some(bias) = parameters.items.bias {
            writer.array("item_bias", bias);
        }
        add_ids(&mut writer, "item_ids", &self.item_ids);
        if let Some(titles) = &self.titles {
            add_titles(&mut writer, titles);
        }
        if let Some(index) = &self.index {
            for (j, codebook) in index.codebooks().iter().enumerate() {
                writer.matrix(format!("index.codewords.{j}"), codebook.codewords().view());
            }
            writer.shaped("index.codes", &[index.codebooks().len(), index.n_items()], index.codes());
        }
        if let Some(users) = users {
            add_users(&mut writer, users);
        }
        writer.write(path)
    }
}

/// Adds titles under `titles`.
pub(crate) fn add_titles<'a>(writer: &mut TensorWriter<'a>, titles: &'a Titles) {
    let (bytes, ends) = titles.parts();
    writer.array("titles.bytes", bytes).array("titles.ends", ends);
}

/// Adds histories under `users`, with their names under `user_ids`.
pub(crate) fn add_users<'a>(writer: &mut TensorWriter<'a>, users: &'a Interactions) {
    writer.positions("users.offsets", users.offsets()).array("users.items", users.items());
    if let Some(weights) = users.weights() {
        writer.array("users.weights", weights);
    }
    add_ids(writer, "user_ids", users.user_ids());
}

/// Adds identifiers under `name`; nothing for `0..n`.
pub(crate) fn add_ids<'a>(writer: &mut TensorWriter<'a>, name: &str, ids: &'a IdMap) {
    if let Some(integers) = ids.integers() {
        writer.array(format!("{name}.integers"), integers);
    } else if let Some((bytes, ends)) = ids.string_parts() {
        writer.array(format!("{name}.bytes"), bytes).array(format!("{name}.ends"), ends);
    }
}
