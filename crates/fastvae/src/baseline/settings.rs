//! [`Settings`]: which baseline, and how.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::baseline::ease::EaseSettings;
use crate::baseline::item_knn::ItemKnnSettings;
use crate::baseline::item_ridge::ItemRidgeSettings;
use crate::baseline::pairwise::PairwiseSettings;
use crate::baseline::wrmf::WrmfSettings;
use crate::data::Interactions;
use crate::error::{Error, Result};

/// The name of a baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The most popular items for everyone.
    Popularity,
    /// Items like those of the history.
    ItemKnn,
    /// A linear model from items to items (Steck, 2019).
    Ease,
    /// A ridge regression of each item on its nearest.
    ItemRidge,
    /// Weighted matrix factorisation (Hu et al., 2008).
    Wrmf,
    /// Pairwise ranking against uniform negatives (Rendle et al., 2009).
    Bpr,
    /// Weighted approximate-rank pairwise loss (Weston et al., 2010).
    Warp,
    /// BPR against items oversampled by the factors' ranks (Rendle & Freudenthaler, 2014).
    Aobpr,
    /// BPR against the best of a few uniform draws (Zhang et al., 2013).
    Dns,
    /// Pairwise ranking with importance sampling from clusters (Lian et al., 2020).
    Pris,
    /// Pairwise ranking with self-adversarial weights (Sun et al., 2019).
    Sa,
}

impl Kind {
    /// Every baseline.
    pub const ALL: [Self; 11] = [
        Self::Popularity,
        Self::ItemKnn,
        Self::Ease,
        Self::ItemRidge,
        Self::Wrmf,
        Self::Bpr,
        Self::Warp,
        Self::Aobpr,
        Self::Dns,
        Self::Pris,
        Self::Sa,
    ];

    /// The name in flags, files and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Popularity => "popularity",
            Self::ItemKnn => "item-knn",
            Self::Ease => "ease",
            Self::ItemRidge => "item-ridge",
            Self::Wrmf => "wrmf",
            Self::Bpr => "bpr",
            Self::Warp => "warp",
            Self::Aobpr => "aobpr",
            Self::Dns => "dns",
            Self::Pris => "pris",
            Self::Sa => "sa",
        }
    }

    /// Sensible settings.
    pub fn settings(self) -> Settings {
        match self {
            Self::Popularity => Settings::Popularity,
            Self::ItemKnn => Settings::ItemKnn(ItemKnnSettings::default()),
            Self::Ease => Settings::Ease(EaseSettings::default()),
            Self::ItemRidge => Settings::ItemRidge(ItemRidgeSettings::default()),
            Self::Wrmf => Settings::Wrmf(WrmfSettings::default()),
            _ => Settings::pairwise(self, PairwiseSettings::of(self)),
        }
    }

    /// The settings of the paper's section 6.1.2, where it has this baseline; sensible ones otherwise.
    pub fn paper_settings(self) -> Settings {
        match self {
            Self::Wrmf => Settings::Wrmf(WrmfSettings::paper()),
            Self::Popularity | Self::ItemKnn | Self::Ease | Self::ItemRidge => self.settings(),
            _ => Settings::pairwise(self, PairwiseSettings::paper(self)),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::config("model", format!("there is no baseline `{text}`"), format!("use one of {names}"))
        })
    }
}

/// A baseline with its settings; `model` names it in JSON and TOML.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "kebab-case")]
pub enum Settings {
    /// [`Kind::Popularity`].
    Popularity,
    /// [`Kind::ItemKnn`].
    ItemKnn(ItemKnnSettings),
    /// [`Kind::Ease`].
    Ease(EaseSettings),
    /// [`Kind::ItemRidge`].
    ItemRidge(ItemRidgeSettings),
    /// [`Kind::Wrmf`].
    Wrmf(WrmfSettings),
    /// [`Kind::Bpr`].
    Bpr(PairwiseSettings),
    /// [`Kind::Warp`].
    Warp(PairwiseSettings),
    /// [`Kind::Aobpr`].
    Aobpr(PairwiseSettings),
    /// [`Kind::Dns`].
    Dns(PairwiseSettings),
    /// [`Kind::Pris`].
    Pris(PairwiseSettings),
    /// [`Kind::Sa`].
    Sa(PairwiseSettings),
}

impl Settings {
    fn pairwise(kind: Kind, settings: PairwiseSettings) -> Self {
        match kind {
            Kind::Bpr => Self::Bpr(settings),
            Kind::Warp => Self::Warp(settings),
            Kind::Aobpr => Self::Aobpr(settings),
            Kind::Dns => Self::Dns(settings),
            Kind::Pris => Self::Pris(settings),
            Kind::Sa => Self::Sa(settings),
            other => unreachable!("{other} is not a pairwise method"),
        }
    }

    /// Which baseline.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Popularity => Kind::Popularity,
            Self::ItemKnn(_) => Kind::ItemKnn,
            Self::Ease(_) => Kind::Ease,
            Self::ItemRidge(_) => Kind::ItemRidge,
            Self::Wrmf(_) => Kind::Wrmf,
            Self::Bpr(_) => Kind::Bpr,
            Self::Warp(_) => Kind::Warp,
            Self::Aobpr(_) => Kind::Aobpr,
            Self::Dns(_) => Kind::Dns,
            Self::Pris(_) => Kind::Pris,
            Self::Sa(_) => Kind::Sa,
        }
    }

    /// The same settings with what they leave to be chosen from the data.
    pub(crate) fn for_data(&self, data: &Interactions) -> Self {
        match self {
            Self::Wrmf(settings) => Self::Wrmf(settings.for_data(data)),
            other => other.clone(),
        }
    }

    /// Every key that can be set, with some value: also those that are absent unless set.
    pub fn complete(&self) -> Self {
        match self {
            Self::Wrmf(settings) => {
                Self::Wrmf(WrmfSettings { alpha: Some(1.0), regularization: Some(1.0), ..settings.clone() })
            }
            other => other.clone(),
        }
    }

    /// Those of a pairwise method.
    pub fn pairwise_mut(&mut self) -> Option<&mut PairwiseSettings> {
        match self {
            Self::Bpr(settings)
            | Self::Warp(settings)
            | Self::Aobpr(settings)
            | Self::Dns(settings)
            | Self::Pris(settings)
            | Self::Sa(settings) => Some(settings),
            _ => None,
        }
    }

    /// Sets the seed, where the method draws random numbers.
    pub fn set_seed(&mut self, to: u64) {
        match self {
            Self::Wrmf(settings) => settings.seed = to,
            other => {
                if let Some(pairwise) = other.pairwise_mut() {
                    pairwise.seed = to;
                }
            }
        }
    }

    /// Checks every value once.
    ///
    /// # Errors
    /// [`Error::Config`] with the first key whose value cannot work.
    pub fn validate(&self) -> Result<()> {
        match self {
            Self::Popularity => Ok(()),
            Self::ItemKnn(settings) => settings.validate(),
            Self::Ease(settings) => settings.validate(),
            Self::ItemRidge(settings) => settings.validate(),
            Self::Wrmf(settings) => settings.validate(),
            Self::Bpr(settings)
            | Self::Warp(settings)
            | Self::Aobpr(settings)
            | Self::Dns(settings)
            | Self::Pris(settings)
            | Self::Sa(settings) => settings.validate(self.kind()),
        }
    }
}
