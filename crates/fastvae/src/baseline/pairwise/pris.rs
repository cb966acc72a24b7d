//! `pris`: negatives by popularity within clusters near the user, weighted so that they follow the softmax.
//!
//! Q(j | u) = pop(j) e^(p_u . c(j)) / Z with c(j) the centre of j's cluster; the weight of a draw is the softmax over
//! the draws of s_j - ln Q(j | u). Clusters are taken anew at each epoch from where they were.

use fearless_simd::Simd;

use super::{Negatives, Pair, Pulls, softmax_weighted};
use crate::config::Popularity;
use crate::data::ItemId;
use crate::index::Codebook;
use crate::index::kmeans::{Points, cluster};
use crate::math::simd::{dot_in, prefetch};
use crate::math::{Matrix, Stream};

pub(super) struct Clustered {
    n: usize,
    n_clusters: usize,
    temperature: f32,
    seed: u64,
    popularity: Vec<f32>,
    log_popularity: Vec<f32>,
    centres: Option<Codebook>,
    /// Items cluster by cluster, with the popularity summed within the cluster.
    items: Vec<ItemId>,
    cumulative: Vec<f32>,
    starts: Vec<usize>,
    /// The cluster of each item.
    codes: Vec<u8>,
}

impl Clustered {
    pub(super) fn new(n: usize, n_clusters: usize, temperature: f32, counts: &[u32], seed: u64) -> Self {
        let popularity: Vec<f32> = counts.iter().map(|&count| Popularity::Log.weight(count)).collect();
        Self {
            n,
            n_clusters,
            temperature,
            seed,
            log_popularity: popularity.iter().map(|weight| weight.ln()).collect(),
            popularity,
            centres: None,
            items: Vec::new(),
            cumulative: Vec::new(),
            starts: Vec::new(),
            codes: Vec::new(),
        }
    }

    /// The popularity of a whole cluster.
    fn mass(&self, cluster: usize) -> f32 {
        let span = self.starts[cluster]..self.starts[cluster + 1];
        self.cumulative[span].last().copied().unwrap_or(0.0)
    }
}

impl Negatives for Clustered {
    fn refresh(&mut self, _: &Matrix, items: &Matrix, epoch: u32) {
        let points = Points::new(items.view(), 0..items.cols());
        let clustering = cluster(&points, self.n_clusters, self.centres.as_ref(), self.seed, epoch, u16::MAX);
        self.codes = clustering.codes;
        self.items = (0..items.rows() as ItemId).collect();
        self.items.sort_by_key(|&item| self.codes[item as usize]);
        self.starts = (0..=self.n_clusters)
            .map(|k| self.items.partition_point(|&item| usize::from(self.codes[item as usize]) < k))
            .collect();
        self.cumulative = vec![0.0; items.rows()];
        for span in self.starts.windows(2) {
            let mut sum = 0.0;
            for at in span[0]..span[1] {
                sum += self.popularity[self.items[at] as usize];
                self.cumulative[at] = sum;
            }
        }
        self.centres = Some(clustering.codebook);
    }

    #[inline(always)]
    fn pull<S: Simd>(&self, simd: S, pair: &Pair<'_>, stream: &mut Stream, pulls: &mut Pulls) -> f32 {
        let centres = self.centres.as_ref().expect("an epoch starts with a refresh");
        let dim = pair.items.cols();
        let (entries, scores, scratch) = (&mut pulls.entries, &mut pulls.scores, &mut pulls.scratch);
        // scratch: logits of the clusters, then their masses summed.
        scratch.clear();
        // A loop, not an iterator: inside one, the product would be a call for each vector of lanes.
        for k in 0..self.n_clusters {
            scratch.push(dot_in(simd, &pair.query[..dim], centres.codeword(k)));
        }
        let shift = scratch.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut sum = 0.0;
        for k in 0..self.n_clusters {
            let logit = scratch[k];
            sum += self.mass(k) * (logit - shift).exp();
            scratch.push(sum);
        }
        let (logits, sums) = scratch.split_at(self.n_clusters);
        for _ in 0..self.n {
            let at = stream.uniform() as f32 * sum;
            let mut cluster = sums.partition_point(|&mass| mass <= at).min(self.n_clusters - 1);
            // Rounding at the end of the sums can point at an empty cluster.
            while self.mass(cluster) <= 0.0 && cluster > 0 {
                cluster -= 1;
            }
            let span = self.starts[cluster]..self.starts[cluster + 1];
            let within = &self.cumulative[span.clone()];
            let at = stream.uniform() as f32 * self.mass(cluster);
            let place = within.partition_point(|&mass| mass <= at).min(within.len() - 1);
            let item = self.items[span.start + place];
            if pair.has(item) {
                continue;
            }
            prefetch(pair.items.row(item as usize));
            // The part of ln Q that all draws share does not show in their softmax.
            entries.push((item, self.log_popularity[item as usize] + logits[cluster]));
        }
        for (item, strength) in entries {
            let (score, log_q) = (pair.score(simd, *item), *strength);
            scores.push(score / self.temperature - log_q);
            *strength = score;
        }
        softmax_weighted(pulls, pair.score(simd, pair.item))
    }
}
