//! Oblivious transfer, and every nonlinear protocol on correlations of a dealer: both roles.

use std::sync::{Arc, LazyLock, OnceLock};

use jaguar_mpc::{
    ArgmaxParams, Elementwise, ExtendParams, Modulus, MpcError, Nonlinear, Party, PoolParams, PoolShape,
    Pooling, ProductParams, Range, Relu6Params, ReluParams, SquareParams, TruncateParams, run_blocks,
};
use jaguar_ot::insecure_test_dealer::InsecureTestDealer;
use jaguar_ot::{Bin, Block, CotSource, Cots, Instances, OtError, Role, Width};
use jaguar_wire::{Channel, memory_transports};

use crate::doubles::{Recording, Replay};
use crate::script::Script;
use crate::{Bound, Target, fixed};

pub(crate) fn targets() -> Vec<Target> {
    vec![
        Target {
            name: "oblivious-transfer",
            run: oblivious_transfer,
            seeds,
            bound: Bound { fixed: 64 << 20, per_byte: 1 << 12 },
            longest: 1024,
            tried: 20,
        },
        Target {
            name: "nonlinear",
            run: nonlinear,
            seeds,
            bound: Bound { fixed: 4 << 20, per_byte: 1 << 12 },
            longest: 1024,
            tried: 1500,
        },
    ]
}

fn seeds() -> Vec<Vec<u8>> {
    let changes = |kind: u8, at: u8| vec![kind | 0x80, 0, at, 0x55, 0xaa, 3, 0xff, 0xff, 0xff, 0xff];
    let of = |how: u8| {
        (0..8).flat_map(move |kind| [0, 0x60, 0xff].map(|at| [vec![how], changes(kind, at)].concat()))
    };
    (0..32).flat_map(|how| of(how).chain([vec![how]])).collect()
}

const ROLES: [Role; 2] = [Role::Client, Role::Server];

/// What each party hears: the client's first.
type Both = [Vec<Vec<u8>>; 2];

/// Runs both roles, and keeps what each hears.
fn record<E: std::fmt::Debug + Send>(party: impl Fn(Role, Channel) -> Result<(), E> + Sync) -> Both {
    let (a, b) = memory_transports();
    let ((a, client), (b, server)) = (Recording::new(a), Recording::new(b));
    std::thread::scope(|scope| {
        let party = &party;
        let one =
            scope.spawn(move || fixed(2, || party(Role::Client, Channel::new(a))).expect("a sound run"));
        let other =
            scope.spawn(move || fixed(3, || party(Role::Server, Channel::new(b))).expect("a sound run"));
        one.join().expect("no panic");
        other.join().expect("no panic");
    });
    [client.chunks(), server.chunks()]
}

/// Sets up, and draws of every kind.
fn draw(role: Role, mut channel: Channel) -> Result<(), OtError> {
    let mut cots = Cots::setup(
        &mut channel,
        role,
        Instances { bits: Bin::B512, vectors: Bin::B512, ..Instances::default() },
    )?;
    for (width, count) in [(Width::Bit, 100), (Width::Vector, 20), (Width::Bit, 3)] {
        let mut halves = vec![Block::ZERO; count];
        for sender in ROLES {
            if sender == role {
                cots.send(&mut channel, width, &mut halves)?;
            } else {
                cots.receive(&mut channel, width, &mut halves)?;
            }
        }
    }
    channel.flush()?;
    Ok(())
}

/// A byte that says the role, then changes to what it hears.
fn oblivious_transfer(input: &[u8]) {
    static RECORDED: LazyLock<Both> = LazyLock::new(|| record(draw));
    let mut script = Script::new(input);
    let role = usize::from(script.byte() & 1);
    let mut chunks = RECORDED[role].clone();
    script.change(&mut chunks);
    let _ = draw(ROLES[role], Replay::channel(chunks));
}

/// Every layer, small.
fn layers() -> Vec<Arc<dyn Nonlinear>> {
    let count = 20;
    let ring = Modulus::power_of_two;
    let shape = PoolShape { channels: 2, size: [4, 5], kernel: [3, 2], stride: [2, 1], pads: [1, 0, 1, 1] };
    let extend = |range| ExtendParams { bits: 16, output: ring(28), range };
    let truncate = TruncateParams { bits: 28, out_bits: 16, shift: 12, range: Range::Signed };
    let odd = Modulus::odd(1_000_003).expect("it is odd");
    let product = ProductParams { out_bits: 24, shift: 20, offsets: [-3, 5] };
    let own: [Arc<dyn Nonlinear>; 13] = [
        Arc::new(Elementwise { count, params: ReluParams::new(16) }),
        Arc::new(Elementwise {
            count,
            params: ReluParams { output: ring(40), digit: 1, ignored: 3, bits: 16 },
        }),
        Arc::new(Elementwise { count, params: Relu6Params::new(16, 10) }),
        Arc::new(Pooling { shape, params: PoolParams { bits: 16, digit: 4, ignored: 0 } }),
        Arc::new(ArgmaxParams { count, bits: 16, digit: 4 }),
        Arc::new(Elementwise { count, params: extend(Range::Signed) }),
        Arc::new(Elementwise { count, params: extend(Range::NonNegative) }),
        Arc::new(Elementwise { count, params: extend(Range::Full { digit: 3 }) }),
        Arc::new(Elementwise { count, params: ExtendParams { output: odd, ..extend(Range::Signed) } }),
        Arc::new(Elementwise { count, params: truncate }),
        Arc::new(Elementwise {
            count,
            params: TruncateParams { range: Range::Full { digit: 4 }, ..truncate },
        }),
        Arc::new(Elementwise { count, params: product }),
        Arc::new(Elementwise { count, params: SquareParams(product) }),
    ];
    // By other comparisons, with 8 bits more.
    let compared: [Arc<dyn Nonlinear>; 3] = [
        Arc::new(Elementwise { count, params: ReluParams::new(28) }),
        Arc::new(Elementwise { count, params: Relu6Params::new(28, 10) }),
        Arc::new(Pooling { shape, params: PoolParams::new(28) }),
    ];
    let by = jaguar_fregata::COMPARISONS.iter();
    let instead = by.flat_map(|by| compared.iter().filter_map(|layer| by.instead(&**layer, 8)));
    own.into_iter().chain(instead).collect()
}

fn walk(layer: &dyn Nonlinear, role: Role, mut channel: Channel) -> Result<(), MpcError> {
    let mut party = Party::new(role, InsecureTestDealer::new(5, role));
    let party: &mut Party<dyn CotSource> = &mut party;
    let mut blocks = layer.prepare(party, &mut channel)?;
    blocks.iter_mut().try_for_each(|block| block.complete(&mut channel))?;
    channel.flush()?;
    let count = blocks.iter().map(|block| block.inputs().end).max().unwrap_or(0);
    let shares: Vec<u64> = (0..count as u64).map(|i| i.wrapping_mul(0x9e37_79b9) & 0xffff).collect();
    run_blocks(blocks, &mut channel, &shares)?;
    channel.flush()?;
    Ok(())
}

/// A byte that says the layer and the role, then changes to what it hears.
fn nonlinear(input: &[u8]) {
    type Layers = Vec<(Arc<dyn Nonlinear>, OnceLock<Both>)>;
    static LAYERS: LazyLock<Layers> =
        LazyLock::new(|| layers().into_iter().map(|layer| (layer, OnceLock::new())).collect());
    let mut script = Script::new(input);
    let how = usize::from(script.byte());
    let (layer, recorded) = &LAYERS[how / 2 % LAYERS.len()];
    let role = how % 2;
    let recorded = recorded.get_or_init(|| record(|role, channel| walk(&**layer, role, channel)));
    let mut chunks = recorded[role].clone();
    script.change(&mut chunks);
    let _ = walk(&**layer, ROLES[role], Replay::channel(chunks));
}
