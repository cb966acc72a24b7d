//! User vectors and item vectors: what the pairwise methods learn.

use std::sync::Arc;

use crate::baseline::method::{Method, Table};
use crate::baseline::settings::Kind;
use crate::data::{IdMap, ItemId, UserId};
use crate::error::{Error, Result};
use crate::eval::{BlockScores, Scorer, Viewer};
use crate::math::Matrix;
use crate::model_file::parts::{read_ids, write_ids};
use crate::model_file::tensors::{TensorFile, TensorWriter};
use crate::proposal::ItemTable;

/// A vector for each user of the training data and for each item; a score is their inner product.
#[derive(Debug)]
pub(crate) struct Factors {
    kind: Kind,
    users: Table,
    items: Table,
    user_ids: Arc<IdMap>,
}

impl Factors {
    pub(crate) fn new(kind: Kind, users: Matrix, items: Matrix, user_ids: Arc<IdMap>) -> Self {
        Self { kind, users: Table::Memory(users), items: Table::Memory(items), user_ids }
    }

    pub(crate) fn read(file: &TensorFile, n_items: usize, kind: Kind, factors: usize) -> Result<Self> {
        let users = file.array::<f32>("users")?;
        let &[n_users, columns] = users.shape() else {
            return Err(file.damaged(format!("the user vectors are {:?}", users.shape())));
        };
        let items = file.array_of::<f32>("items", &[n_items, factors])?;
        if columns != factors || !users.is_finite() || !items.is_finite() {
            return Err(file.damaged(format!("the vectors are not finite, or not of {factors} factors")));
        }
        let user_ids = Arc::new(read_ids(file, "factor_user_ids", n_users)?);
        Ok(Self { kind, users: Table::File(users), items: Table::File(items), user_ids })
    }

    fn user(&self, viewer: &Viewer<'_>) -> Result<UserId> {
        viewer.user.filter(|&user| (user as usize) < self.user_ids.len()).ok_or_else(|| {
            Error::data(
                format!(
                    "{} learned a vector for each of its {} training users and has none for anybody else",
                    self.kind,
                    self.user_ids.len()
                ),
                "name a user of the training data, or train wrmf, item-knn, ease or fastvae, which take any history",
            )
        })
    }
}

impl Scorer for Factors {
    fn n_items(&self) -> usize {
        self.items.view().rows()
    }

    fn block<'a>(&'a self, viewers: &'a [Viewer<'a>]) -> Result<BlockScores<'a>> {
        let (users, vectors) = (self.users.view(), self.items.view());
        let mut queries = Matrix::zeros(viewers.len(), users.cols());
        for (row, viewer) in viewers.iter().enumerate() {
            // Nobody scores nothing; for them there are the popular items.
            if viewer.is_nobody() {
                continue;
            }
            let user = self.user(viewer)?;
            queries.row_mut(row)[..users.cols()].copy_from_slice(users.row(user as usize));
        }
        Ok(BlockScores::products(queries, ItemTable { vectors, bias: None }))
    }

    fn user_ids(&self) -> Option<&Arc<IdMap>> {
        Some(&self.user_ids)
    }

    fn item_table(&self) -> Option<ItemTable<'_>> {
        Some(ItemTable { vectors: self.items.view(), bias: None })
    }
}

impl Method for Factors {
    fn likeness(&self, _: ItemId, _: &mut [f32]) -> Result<()> {
        unreachable!("its items have vectors")
    }

    fn contributions(&self, viewer: Viewer<'_>, items: &[ItemId]) -> Result<Matrix> {
        // A user's vector was learned with all of the history; no item of it can be left out any more.
        Ok(Matrix::zeros(viewer.history.items.len(), items.len()))
    }

    fn forget_items(&self) {
        self.items.forget();
    }

    fn write<'a>(&'a self, writer: &mut TensorWriter<'a>) {
        writer.matrix("users", self.users.view()).matrix("items", self.items.view());
        write_ids(writer, "factor_user_ids", &self.user_ids);
    }
}
