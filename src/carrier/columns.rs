//! Sums of products, each in the order of its index; only what does not depend on each other stands side by side.
//!
//! Four columns at a time where the processor has AVX2, one at a time elsewhere. Nothing is fused and no sum is
//! taken apart, so both give the same bits; a test holds them against each other.

/// `sums[c] += vector[0]·matrix[0][c]`, then `vector[1]·matrix[1][c]`, and so on; the matrix row after row.
#[inline]
pub fn add_products(sums: &mut [f64], vector: &[f64], matrix: &[f64]) {
    #[cfg(target_arch = "x86_64")]
    if sums.len().is_multiple_of(4) && wide::add_products(sums, vector, matrix) {
        return;
    }
    one_by_one(sums, vector, matrix);
}

fn one_by_one(sums: &mut [f64], vector: &[f64], matrix: &[f64]) {
    for (factor, row) in vector.iter().zip(matrix.chunks_exact(sums.len())) {
        for (sum, value) in sums.iter_mut().zip(row) {
            *sum += factor * value;
        }
    }
}

/// `a[0]·b[0] + a[1]·b[1] + …`, from 0.
#[inline(always)]
pub fn product(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).fold(0.0, |sum, (a, b)| sum + a * b)
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod wide {
    use std::arch::x86_64::{
        _mm256_add_pd, _mm256_loadu_pd, _mm256_mul_pd, _mm256_set1_pd, _mm256_storeu_pd,
    };

    /// Whether it was done: not where the processor lacks AVX2.
    #[inline]
    pub fn add_products(sums: &mut [f64], vector: &[f64], matrix: &[f64]) -> bool {
        if !std::arch::is_x86_feature_detected!("avx2") {
            return false;
        }
        let width = sums.len();
        let rows = vector.len().min(matrix.len() / width.max(1));
        let mut column = 0;
        while column + 16 <= width {
            // SAFETY: the processor has AVX2; sixteen columns from `column` on are within `width`, `vector` has
            // `rows` numbers or more, and `matrix` `rows` times `width`.
            unsafe { block_of(sums.as_mut_ptr(), vector.as_ptr(), matrix.as_ptr(), (rows, width), column) };
            column += 16;
        }
        while column + 4 <= width {
            // SAFETY: as above, of four columns.
            unsafe { four_of(sums.as_mut_ptr(), vector.as_ptr(), matrix.as_ptr(), (rows, width), column) };
            column += 4;
        }
        true
    }

    /// Sixteen columns from `column` on: they stay in registers while the rows go by. Pointers, because the checks
    /// of slices are calls where size counts, and the registers would be put by for each.
    #[target_feature(enable = "avx2")]
    unsafe fn block_of(
        sums: *mut f64,
        vector: *const f64,
        matrix: *const f64,
        (rows, width): (usize, usize),
        column: usize,
    ) {
        // SAFETY: the caller's; loads and stores need no alignment.
        unsafe {
            let sums = sums.add(column);
            let mut a = _mm256_loadu_pd(sums);
            let mut b = _mm256_loadu_pd(sums.add(4));
            let mut c = _mm256_loadu_pd(sums.add(8));
            let mut d = _mm256_loadu_pd(sums.add(12));
            let mut index = 0;
            while index < rows {
                let factor = _mm256_set1_pd(*vector.add(index));
                let row = matrix.add(index * width + column);
                a = _mm256_add_pd(a, _mm256_mul_pd(factor, _mm256_loadu_pd(row)));
                b = _mm256_add_pd(b, _mm256_mul_pd(factor, _mm256_loadu_pd(row.add(4))));
                c = _mm256_add_pd(c, _mm256_mul_pd(factor, _mm256_loadu_pd(row.add(8))));
                d = _mm256_add_pd(d, _mm256_mul_pd(factor, _mm256_loadu_pd(row.add(12))));
                index += 1;
            }
            _mm256_storeu_pd(sums, a);
            _mm256_storeu_pd(sums.add(4), b);
            _mm256_storeu_pd(sums.add(8), c);
            _mm256_storeu_pd(sums.add(12), d);
        }
    }

    #[target_feature(enable = "avx2")]
    unsafe fn four_of(
        sums: *mut f64,
        vector: *const f64,
        matrix: *const f64,
        (rows, width): (usize, usize),
        column: usize,
    ) {
        // SAFETY: as above.
        unsafe {
            let sums = sums.add(column);
            let mut sum = _mm256_loadu_pd(sums);
            let mut index = 0;
            while index < rows {
                let factor = _mm256_set1_pd(*vector.add(index));
                let row = matrix.add(index * width + column);
                sum = _mm256_add_pd(sum, _mm256_mul_pd(factor, _mm256_loadu_pd(row)));
                index += 1;
            }
            _mm256_storeu_pd(sums, sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::chance::Chance;

    #[test]
    fn side_by_side_is_one_by_one() {
        let mut chance = Chance::new(8);
        let mut numbers = |count: usize| (0..count).map(|_| chance.unit() - 0.5).collect::<Vec<f64>>();
        for (rows, width) in
            [(1, 4), (16, 16), (16, 32), (32, 16), (16, 64), (24, 20), (7, 5), (3, 24), (2, 1)]
        {
            let (vector, matrix, begin) = (numbers(rows), numbers(rows * width), numbers(width));
            let (mut wide, mut slow) = (begin.clone(), begin.clone());
            add_products(&mut wide, &vector, &matrix);
            one_by_one(&mut slow, &vector, &matrix);
            let bits = |sums: &[f64]| sums.iter().map(|sum| sum.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&wide), bits(&slow), "{rows} rows of {width}");
        }
    }
}
