//! Adam with compact moments.

use fearless_simd::{f32x16, prelude::*};

use super::missed::Missed;
use super::{BETA1, BETA2, EPSILON, NOTHING, Update, above, halves};
use crate::math::matrix::LANES;

impl Update {
    /// [`Update::row`] with compact moments: the row moves along its first moment, undistorted. With `CATCH_UP` it
    /// first catches up with the steps that it missed.
    #[inline(always)]
    pub(super) fn compact<S: Simd, const CATCH_UP: bool>(
        &self,
        simd: S,
        [parameter, first]: [&mut [f32]; 2],
        (second, share): (&mut f32, f32),
        gradient: &[f32],
        gap: u32,
        ask: impl Fn(usize),
    ) {
        // A copy: the compiler cannot know that the rows do not overlap the update.
        let update = *self;
        let n_lines = parameter.len() / LANES;
        let parameter = parameter.as_chunks_mut::<LANES>().0;
        let gradient = &gradient.as_chunks::<LANES>().0[..n_lines];
        let first = &mut first.as_chunks_mut::<LANES>().0[..n_lines.div_ceil(2)];
        let (mut missed, mut before) = (Missed::default(), *second);
        if CATCH_UP {
            missed = update.missed(gap);
            // Decay takes no more than there is, however small the root.
            let root = (before.sqrt() * update.second_scale + EPSILON).max(missed.decay);
            missed = Missed { momentum: missed.momentum / root, decay: missed.decay / root, ..missed };
            before *= missed.second;
        }
        let mut squares = f32x16::splat(simd, 0.0);
        for (pair, words) in first.iter_mut().enumerate() {
            let line = 2 * pair;
            let [mut high, mut low] = halves::unpack(simd, words);
            ask(line);
            high = update.mean::<_, CATCH_UP>(
                simd,
                &mut parameter[line],
                high,
                &gradient[line],
                missed,
                &mut squares,
            );
            if let (Some(parameter), Some(gradient)) = (parameter.get_mut(line + 1), gradient.get(line + 1)) {
                ask(line + 1);
                low = update.mean::<_, CATCH_UP>(simd, parameter, low, gradient, missed, &mut squares);
            }
            halves::pack([high, low], words);
        }
        *second = squares.reduce_sum().mul_add(share, before * BETA2);
        let rate = f32x16::splat(simd, -update.rate / (second.sqrt() * update.second_scale + EPSILON));
        let keep = f32x16::splat(simd, 1.0 - update.decoupled_decay);
        for (parameters, words) in parameter.chunks_mut(2).zip(first) {
            for (parameter, m) in parameters.iter_mut().zip(halves::unpack(simd, words)) {
                m.mul_add(rate, f32x16::load_array_ref(simd, parameter) * keep).store_slice(parameter);
            }
        }
    }

    /// The first moments of sixteen columns of a compact row after a step, where they were `m`; `squares` grow by those
    /// of the gradient. What the row `missed` comes over its root.
    #[inline(always)]
    fn mean<S: Simd, const CATCH_UP: bool>(
        &self,
        simd: S,
        parameter: &mut [f32; LANES],
        mut m: f32x16<S>,
        gradient: &[f32; LANES],
        missed: Missed,
        squares: &mut f32x16<S>,
    ) -> f32x16<S> {
        let mut p = f32x16::load_array_ref(simd, parameter);
        if CATCH_UP {
            p -= p.mul_add(f32x16::splat(simd, missed.decay), m * missed.momentum);
            p *= missed.shrink;
            m *= missed.first;
            p.store_slice(parameter);
        }
        let g = f32x16::load_array_ref(simd, gradient);
        let g = p.mul_add(f32x16::splat(simd, self.coupled_decay), g);
        *squares = g.mul_add(g, *squares);
        above(simd, (g - m).mul_add(f32x16::splat(simd, 1.0 - BETA1), m), NOTHING)
    }
}
