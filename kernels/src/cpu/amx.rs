//! Tile registers (AMX): products of 16 x 16 outputs in one instruction.
//!
//! Eight registers of 16 rows of 64 bytes. Their instructions are written as
//! assembly, since the language has no stable functions for them; a process must
//! ask the system before the first use.
//!
//! **Invariant:** registers are set up while a [`ByteTiles`] or [`PairTiles`]
//! lives, on its thread only. No other code in this program uses them, and the
//! compiler knows none of them, so they keep their contents between statements.
//!
//! **Refuses:** systems other than Linux, which give no leave to use them.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) use machine::{ByteTiles, PairTiles, Tiles};
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub(crate) use nowhere::{ByteTiles, PairTiles, Tiles};

use crate::cpu::lanes::LANES;

/// Rows of a tile.
pub(crate) const TILE_ROWS: usize = 16;

/// A tile of sums of 32 bits.
pub(crate) type SumTile = [[i32; LANES]; TILE_ROWS];

/// Weights of two blocks and two vectors of sixteen columns: for each vector and
/// each block, eight lines of four inputs of each column.
pub(crate) type WeightLines = [[u8; 64]; 32];

/// Where a product of pairs lies: `[rows, 32 * n_steps]` times
/// `[32 * n_steps, 32]` numbers of bfloat16, the left ones in pairs along its
/// rows, the right ones in pairs along its columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PairProduct {
    /// Words from one row of the left matrix to the next.
    pub(crate) left_stride: usize,
    /// Words from one row of the right matrix to the next.
    pub(crate) right_stride: usize,
    /// Numbers from one row of the output to the next.
    pub(crate) out_stride: usize,
    /// Steps of 32 numbers.
    pub(crate) n_steps: usize,
    /// Whether the output's numbers are added to.
    pub(crate) adds: bool,
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod machine {
    #![expect(unsafe_code, reason = "the instructions exist only on some machines")]
    #![expect(clippy::unused_self, reason = "to hold one is the leave to use the registers")]

    use std::arch::asm;
    use std::arch::x86_64::__cpuid_count;
    use std::marker::PhantomData;
    use std::sync::OnceLock;

    use super::{LANES, PairProduct, SumTile, TILE_ROWS, WeightLines};

    /// Leave to use tile registers in this process.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Tiles(());

    impl Tiles {
        /// Asks the machine whether it has tiles for bytes and for bfloat16, and the
        /// system for leave to use them. The answer is kept.
        pub(crate) fn detect() -> Option<Tiles> {
            static ANSWER: OnceLock<bool> = OnceLock::new();
            ANSWER.get_or_init(|| has_tiles() && may_use_tiles()).then_some(Tiles(()))
        }

        /// Sets up products of bytes with `rows` rows of inputs, at most 16.
        pub(crate) fn bytes(self, rows: usize) -> ByteTiles {
            let mut tiles = ByteTiles { rows: 0, thread: PhantomData };
            tiles.set_rows(rows);
            tiles
        }

        /// Sets up products of pairs of bfloat16 with `rows` rows, at most 16.
        pub(crate) fn pairs(self, rows: usize) -> PairTiles {
            let mut tiles = PairTiles { rows: 0, thread: PhantomData };
            tiles.set_rows(rows);
            tiles
        }
    }

    /// Bits of leaf 7: `AMX-BF16`, `AMX-TILE`, `AMX-INT8`.
    fn has_tiles() -> bool {
        let wanted = 1 << 22 | 1 << 24 | 1 << 25;
        __cpuid_count(7, 0).edx & wanted == wanted
    }

    /// Linux gives the tiles' state to processes that ask (`arch_prctl(2)`, "Using
    /// XSTATE features in user space applications").
    fn may_use_tiles() -> bool {
        const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
        const XFEATURE_XTILEDATA: libc::c_long = 18;
        // SAFETY: the call reads no memory and writes none of this process.
        let answer =
            unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) };
        answer == 0
    }

    /// Rows, and bytes of a row, of the eight registers: palette 1.
    fn configure(shapes: [(usize, usize); 8]) {
        #[repr(C, align(64))]
        struct Configuration {
            palette: u8,
            start_row: u8,
            reserved: [u8; 14],
            row_bytes: [u16; 16],
            rows: [u8; 16],
        }
        let mut configuration = Configuration {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        for (i, (rows, bytes)) in shapes.into_iter().enumerate() {
            assert!(rows <= TILE_ROWS && bytes <= 64, "a tile of {rows} rows of {bytes} bytes");
            configuration.rows[i] = rows as u8;
            configuration.row_bytes[i] = bytes as u16;
        }
        // SAFETY: `Tiles` shows that the machine has the instruction and that the
        // process may use it; the operand is 64 bytes that palette 1 allows.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const configuration, options(nostack)) }
    }

    fn release() {
        // SAFETY: as for `configure`; the registers' contents are not used again.
        unsafe { asm!("tilerelease", options(nostack, nomem)) }
    }

    /// Products of bytes: two blocks of 32 inputs for each of some rows.
    #[derive(Debug)]
    pub(crate) struct ByteTiles {
        rows: usize,
        thread: PhantomData<*const ()>,
    }

    impl Drop for ByteTiles {
        fn drop(&mut self) {
            release();
        }
    }

    /// All four products of two blocks and two vectors, by the instruction `$dot`.
    macro_rules! dots {
        ($dot:literal, $a:ident, $b:ident) => {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "tileloadd tmm4, [{a} + {line}*1]",
                "tileloadd tmm6, [{b} + {line}*1]",
                concat!($dot, " tmm0, tmm4, tmm6"),
                "tileloadd tmm7, [{b} + {line}*1 + 1024]",
                concat!($dot, " tmm2, tmm4, tmm7"),
                "tileloadd tmm5, [{a} + {line}*1 + 32]",
                "tileloadd tmm6, [{b} + {line}*1 + 512]",
                concat!($dot, " tmm1, tmm5, tmm6"),
                "tileloadd tmm7, [{b} + {line}*1 + 1536]",
                concat!($dot, " tmm3, tmm5, tmm7"),
                a = in(reg) $a, b = in(reg) $b, line = in(reg) 64_usize,
                options(nostack, readonly)
            )
        };
    }

    impl ByteTiles {
        /// Sets the registers up for other rows.
        #[inline(always)]
        pub(crate) fn set_rows(&mut self, rows: usize) {
            if self.rows != rows {
                let (sums, inputs, weights) = ((rows, 64), (rows, 32), (8, 64));
                configure([sums, sums, sums, sums, inputs, inputs, weights, weights]);
                self.rows = rows;
            }
        }

        /// Rows that the registers are set up for.
        pub(crate) fn rows(&self) -> usize {
            self.rows
        }

        /// Begins, for each row, the products of two blocks with two vectors of
        /// columns: the blocks' inputs are the sixteen words of the row, four signed
        /// bytes each; the weights are signed or not, as `SIGNED` says. [`finish`](Self::finish) gives the sums: between
        /// the two the machine has something else to do.
        #[inline(always)]
        pub(crate) fn begin<const SIGNED: bool>(
            &mut self,
            inputs: &[[i32; LANES]; TILE_ROWS],
            weights: &WeightLines,
        ) {
            let (a, b) = (inputs.as_ptr(), weights.as_ptr());
            if SIGNED {
                // SAFETY: the registers are set up while `self` lives, and nothing
                // else uses them. `a` is 16 lines, of which at most so many rows are
                // read; `b` is 32 lines.
                unsafe { dots!("tdpbssd", a, b) }
            } else {
                // SAFETY: as above.
                unsafe { dots!("tdpbsud", a, b) }
            }
        }

        /// The sums that [`begin`](Self::begin) has begun, for each vector those of
        /// each block.
        #[inline(always)]
        pub(crate) fn finish(&mut self, sums: &mut [[SumTile; 2]; 2]) {
            // SAFETY: the registers are set up while `self` lives; the first four
            // have at most 16 lines each, and `sums` has room for four times 16.
            unsafe {
                asm!(
                    "tilestored [{c} + {line}*1], tmm0",
                    "tilestored [{c} + {line}*1 + 1024], tmm1",
                    "tilestored [{c} + {line}*1 + 2048], tmm2",
                    "tilestored [{c} + {line}*1 + 3072], tmm3",
                    c = in(reg) sums.as_mut_ptr(), line = in(reg) 64_usize,
                    options(nostack)
                );
            }
        }
    }

    /// Products of pairs of bfloat16.
    #[derive(Debug)]
    pub(crate) struct PairTiles {
        rows: usize,
        thread: PhantomData<*const ()>,
    }

    impl Drop for PairTiles {
        fn drop(&mut self) {
            release();
        }
    }

    /// What sums start from: two vectors.
    static ZEROS: [f32; 2 * LANES] = [0.0; 2 * LANES];

    impl PairTiles {
        /// Sets the registers up for other rows.
        #[inline(always)]
        pub(crate) fn set_rows(&mut self, rows: usize) {
            if self.rows != rows {
                configure([
                    (rows, 64),
                    (rows, 64),
                    (rows, 64),
                    (rows, 64),
                    (rows, 64),
                    (rows, 64),
                    (16, 64),
                    (16, 64),
                ]);
                self.rows = rows;
            }
        }

        /// Checks that a product of `rows` rows lies within its slices.
        fn check(rows: usize, left: &[f32], right: &[f32], out: &[f32], product: &PairProduct) {
            let PairProduct { left_stride, right_stride, out_stride, n_steps, .. } = *product;
            let words = n_steps * LANES;
            assert!(rows > 0 && words > 0, "empty product");
            assert!((rows - 1) * left_stride + words <= left.len(), "left matrix out of bounds");
            let right_end = (words - 1) * right_stride + 2 * LANES;
            assert!(right_end <= right.len(), "right matrix out of bounds");
            assert!((rows - 1) * out_stride + 2 * LANES <= out.len(), "output out of bounds");
        }

        /// Two tiles of rows, 32, by two vectors of columns.
        ///
        /// # Panics
        /// When the registers are not set up for 16 rows, or a matrix is too small.
        #[inline(always)]
        pub(crate) fn two_by_two(
            &self,
            left: &[f32],
            right: &[f32],
            out: &mut [f32],
            product: &PairProduct,
        ) {
            assert_eq!(self.rows, TILE_ROWS, "two tiles are whole ones");
            Self::check(2 * TILE_ROWS, left, right, out, product);
            let bytes = |words: usize| words * size_of::<f32>();
            let (left_stride, out_stride) = (bytes(product.left_stride), bytes(product.out_stride));
            let (a, c) = (left.as_ptr(), out.as_mut_ptr());
            let a_next = a.wrapping_add(TILE_ROWS * product.left_stride);
            let c_next = c.wrapping_add(TILE_ROWS * product.out_stride);
            let (start, start_next, start_stride) = if product.adds {
                (c.cast_const(), c_next.cast_const(), out_stride)
            } else {
                (ZEROS.as_ptr(), ZEROS.as_ptr(), 0)
            };
            // SAFETY: the registers are set up while `self` lives. What is read and
            // written are rows of 64 bytes: of `left` from the first word of each
            // step on, of `right`, two beside each other, and of `out` or `ZEROS`,
            // likewise; `check` has bounded the last of each.
            unsafe {
                asm!(
                    "tileloadd tmm0, [{s} + {ss}*1]",
                    "tileloadd tmm1, [{s} + {ss}*1 + 64]",
                    "tileloadd tmm2, [{s2} + {ss}*1]",
                    "tileloadd tmm3, [{s2} + {ss}*1 + 64]",
                    "2:",
                    "tileloadd tmm4, [{a} + {as_}*1]",
                    "tileloadd tmm6, [{b} + {bs}*1]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tileloadd tmm7, [{b} + {bs}*1 + 64]",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "tileloadd tmm5, [{a2} + {as_}*1]",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tdpbf16ps tmm3, tmm5, tmm7",
                    "add {a}, 64",
                    "add {a2}, 64",
                    "lea {b}, [{b} + {bs}*8]",
                    "lea {b}, [{b} + {bs}*8]",
                    "dec {k}",
                    "jnz 2b",
                    "tilestored [{c} + {cs}*1], tmm0",
                    "tilestored [{c} + {cs}*1 + 64], tmm1",
                    "tilestored [{c2} + {cs}*1], tmm2",
                    "tilestored [{c2} + {cs}*1 + 64], tmm3",
                    s = in(reg) start, s2 = in(reg) start_next, ss = in(reg) start_stride,
                    a = inout(reg) a => _, a2 = inout(reg) a_next => _, as_ = in(reg) left_stride,
                    b = inout(reg) right.as_ptr() => _, bs = in(reg) bytes(product.right_stride),
                    k = inout(reg) product.n_steps => _,
                    c = in(reg) c, c2 = in(reg) c_next, cs = in(reg) out_stride,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack)
                );
            }
        }

        /// One tile of rows, as many as were set up, by two vectors of columns.
        ///
        /// # Panics
        /// When a matrix is too small.
        #[inline(always)]
        pub(crate) fn one_by_two(
            &self,
            left: &[f32],
            right: &[f32],
            out: &mut [f32],
            product: &PairProduct,
        ) {
            Self::check(self.rows, left, right, out, product);
            let bytes = |words: usize| words * size_of::<f32>();
            let c = out.as_mut_ptr();
            let out_stride = bytes(product.out_stride);
            let (start, start_stride) =
                if product.adds { (c.cast_const(), out_stride) } else { (ZEROS.as_ptr(), 0) };
            // SAFETY: as in `two_by_two`, with the rows that were set up.
            unsafe {
                asm!(
                    "tileloadd tmm0, [{s} + {ss}*1]",
                    "tileloadd tmm1, [{s} + {ss}*1 + 64]",
                    "2:",
                    "tileloadd tmm4, [{a} + {as_}*1]",
                    "tileloadd tmm6, [{b} + {bs}*1]",
                    "tileloadd tmm7, [{b} + {bs}*1 + 64]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "add {a}, 64",
                    "lea {b}, [{b} + {bs}*8]",
                    "lea {b}, [{b} + {bs}*8]",
                    "dec {k}",
                    "jnz 2b",
                    "tilestored [{c} + {cs}*1], tmm0",
                    "tilestored [{c} + {cs}*1 + 64], tmm1",
                    s = in(reg) start, ss = in(reg) start_stride,
                    a = inout(reg) left.as_ptr() => _, as_ = in(reg) bytes(product.left_stride),
                    b = inout(reg) right.as_ptr() => _, bs = in(reg) bytes(product.right_stride),
                    k = inout(reg) product.n_steps => _,
                    c = in(reg) c, cs = in(reg) out_stride,
                    out("tmm0") _, out("tmm1") _, out("tmm4") _, out("tmm6") _, out("tmm7") _,
                    options(nostack)
                );
            }
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod nowhere {
    use super::{LANES, PairProduct, SumTile, TILE_ROWS, WeightLines};

    /// There are none.
    #[derive(Debug, Clone, Copy)]
    pub(crate) enum Tiles {}
    /// There are none.
    #[derive(Debug)]
    pub(crate) enum ByteTiles {}
    /// There are none.
    #[derive(Debug)]
    pub(crate) enum PairTiles {}

    impl Tiles {
        pub(crate) fn detect() -> Option<Tiles> {
            None
        }

        pub(crate) fn bytes(self, _: usize) -> ByteTiles {
            match self {}
        }

        pub(crate) fn pairs(self, _: usize) -> PairTiles {
            match self {}
        }
    }

    impl ByteTiles {
        pub(crate) fn set_rows(&mut self, _: usize) {
            match *self {}
        }

        pub(crate) fn rows(&self) -> usize {
            match *self {}
        }

        pub(crate) fn begin<const SIGNED: bool>(
            &mut self,
            _: &[[i32; LANES]; TILE_ROWS],
            _: &WeightLines,
        ) {
            match *self {}
        }

        pub(crate) fn finish(&mut self, _: &mut [[SumTile; 2]; 2]) {
            match *self {}
        }
    }

    impl PairTiles {
        pub(crate) fn set_rows(&mut self, _: usize) {
            match *self {}
        }

        pub(crate) fn two_by_two(&self, _: &[f32], _: &[f32], _: &mut [f32], _: &PairProduct) {
            match *self {}
        }

        pub(crate) fn one_by_two(&self, _: &[f32], _: &[f32], _: &mut [f32], _: &PairProduct) {
            match *self {}
        }
    }
}
