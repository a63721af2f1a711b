//! What a peer, a file or a caller may do wrong: an error that names it, no panic, no endless work.

use super::*;

/// What this side tells its peer when it gives up holds no path and no value.
#[test]
fn local_failures_stay_local() {
    let path = std::path::Path::new("/home/someone/.cache/jaguar");
    let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
    for error in [
        EngineError::file("writing", path, full),
        EngineError::Hint(format!("{} is damaged", path.display())),
        EngineError::Input("input value 12345 is outside".into()),
        EngineError::Bundle(BundleError::Unusable(format!("{}: damaged", path.display())))
            .in_layer("conv", "online"),
    ] {
        let told = error.for_peer();
        assert!(!told.contains("someone") && !told.contains("12345"), "{told}");
    }
}

/// Networks that are sound but would cost their reader minutes or gigabytes, in a few hundred bytes.
#[test]
fn small_descriptions_of_endless_work_are_refused_at_once() {
    let greet = |b: Builder| greet(b, Kit::JAGUAR);
    // A max-pool with a schedule of gigabytes.
    let mut pool = Builder::new([16, 1024, 1024]);
    let window = Window { kernel: [1024; 2], stride: [1; 2], pads: [512, 512, 511, 511] };
    pool.add(Op::new(MaxPool { window, ignored: 0 }), &[0], [16, 1024, 1024]);
    assert!(matches!(greet(pool), Err(EngineError::PeerMisbehaved(_))));
    // ReLUs with gigabytes of prepared material.
    let mut relus = Builder::new([64, 1024, 1024]);
    let mut last = 0;
    for _ in 0..3 {
        last = relus.add(Op::new(Relu { ignored: 0 }), &[last], [64, 1024, 1024]);
    }
    assert!(greet(relus).is_err());
    // A kernel that falls into as many stages as it has taps: fine, and planned at once.
    let mut stages = Builder::new([1, 1024, 1024]);
    stages.conv(0, 1, 512, 512, 0, 1);
    greet(stages).unwrap();
    // A kernel that nearly fills the ring, over a huge map: gigabytes of tiles. One of millions of taps.
    let mut tiles = Builder::new([1, 2048, 2048]);
    tiles.conv(0, 1, 43, 1, 0, 1);
    let mut taps = Builder::new([1, 8192, 4096]);
    taps.conv(0, 1, 4096, 4096, 0, 1);
    for (network, what) in [(tiles, "tiles in one layer"), (taps, "taps in one layer")] {
        let error = greet(network).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
    // One output channel, cheap in plaintext: ciphertexts, or runs of values in them, by the gigabyte.
    let one = Linear {
        out_channels: 1,
        kernel: [1, 1],
        stride: [1, 1],
        dilation: [1, 1],
        pads: [0; 4],
        groups: 1,
        shift: 12,
        max_exponent: 0,
        blocks: None,
    };
    let far = Linear { kernel: [2, 1], dilation: [2047, 1], pads: [4096, 4, 4096, 5], ..one.clone() };
    let combs = Linear { kernel: [1, 683], dilation: [1, 3], ..one.clone() };
    let mut cases = vec![([256, 1, 1], far.clone(), 1, "ciphertexts in one layer")];
    cases.push(([65_536, 1, 1], far, 1, "ciphertexts in one layer"));
    cases.push(([1, 1, 133_046], combs.clone(), 1, "runs of values in one layer"));
    // Each of them within the limits.
    cases.push(([1, 1, 13_304], combs, 30, "in the layers so far"));
    for (shape, spec, layers, what) in cases {
        let mut network = Builder::new(shape);
        let [h, w] = spec.output_hw(shape).unwrap();
        for _ in 0..layers {
            network.add(Op::new(spec.clone()), &[0], [1, h, w]);
        }
        let error = greet(network).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
    // A nonlinear layer behind a sum that has outgrown its ring.
    let mut wide = Builder::new([3, 8, 8]);
    let window = Window { kernel: [4; 2], stride: [4; 2], pads: [0; 4] };
    let sum = wide.add(Op::new(SumPool { window, count_real_places: None }), &[0], [3, 2, 2]);
    wide.add(Op::new(Relu { ignored: 0 }), &[sum], [3, 2, 2]);
    assert!(matches!(greet(wide).unwrap_err().root(), EngineError::Plan(_)));
}

/// A server may not make its client plan for ever, or print what a terminal would obey.
#[test]
fn a_network_beyond_the_limits_is_refused() {
    let mut bundle = everything();
    let server = service(everything());
    for (limits, what) in [
        (Limits { values: 100, ..Limits::default() }, "values"),
        (Limits { multiply_adds: 100, ..Limits::default() }, "multiplications"),
        (Limits { prepared_bytes: 100, ..Limits::default() }, "prepared"),
        (Limits { hint_bytes: 100, ..Limits::default() }, "hint"),
    ] {
        let (result, _) = session(&server, |channel| connect(channel, &limits).map(|_| ()));
        assert!(result.unwrap_err().to_string().contains(what));
    }
    bundle.model.network.nodes[1].name = "\u{1b}[2J".into();
    let renamed = service(bundle);
    let (result, _) = session(&renamed, |channel| connect(channel, &Limits::default()).map(|_| ()));
    assert!(result.unwrap_err().to_string().contains("control"));
}

#[test]
fn an_input_that_does_not_fit_is_named() {
    let cache = Scratch::new("input");
    let service = service(everything());
    for (bad, what) in [(vec![0; 5], "5 values"), (vec![1 << 20; 3 * 17 * 15], "1048576")] {
        let (error, served) = session(&service, |channel| {
            let ready = connect(channel, &Limits::default()).unwrap().prepare_client(&cache.0).unwrap();
            ready.prepare_query(&mut NoProgress).unwrap().run(&bad, &mut NoProgress).map(|_| ()).unwrap_err()
        });
        assert!(error.to_string().contains(what), "{error}");
        // The server hears that the client gave up, and nothing of the input.
        let heard = served.unwrap_err();
        assert!(matches!(root(&heard), EngineError::Wire(WireError::PeerAborted(_))));
        assert!(!heard.to_string().contains("1048576"), "{heard}");
    }
}

#[test]
fn a_hostile_or_foreign_peer_gets_an_error_not_a_panic() {
    let service = service(everything());
    let mut prg = Prg::new([8; 32]);
    // Garbage, lengths that lie, another version, silence and departure.
    let mut openings: Vec<Vec<u8>> = vec![
        vec![],
        vec![0xff; 64],
        [4u32.to_le_bytes().to_vec(), vec![PROTOCOL_VERSION as u8]].concat(),
        u32::MAX.to_le_bytes().to_vec(),
        [1u32.to_le_bytes().to_vec(), vec![99]].concat(),
    ];
    for _ in 0..20 {
        let mut garbage = vec![0; 300];
        prg.fill(&mut garbage);
        // A sound greeting, then noise: deeper states see garbage too.
        openings.push([1u32.to_le_bytes().to_vec(), vec![PROTOCOL_VERSION as u8], garbage].concat());
    }
    for opening in openings {
        let (_, served) = session(&service, |mut channel| {
            channel.send(&opening).and_then(|()| channel.flush()).unwrap();
        });
        assert!(served.is_err(), "{opening:?}");
    }
    // The other way round: a server that sends garbage.
    for seed in 0..20u8 {
        let (client_end, mut server_end) = memory_pair();
        let mut garbage = vec![0; 400];
        Prg::new([seed; 32]).fill(&mut garbage);
        if seed % 2 == 0 {
            garbage[..5].copy_from_slice(&[1, 0, 0, 0, PROTOCOL_VERSION as u8]);
        }
        server_end.send(&garbage).and_then(|()| server_end.flush()).unwrap();
        drop(server_end);
        assert!(connect(client_end, &Limits::default()).is_err());
    }
}

/// Connections that end, and bits that flip, anywhere from the acceptance to the result, on the way to either party: an error or a
/// wrong answer at both of them, never a panic, and nobody waits for ever. (Flips in the lengths of control messages are left out: who
/// is promised more than comes has to wait.)
#[test]
fn no_fault_makes_a_party_panic_or_wait() {
    let x = input(6, 3 * 17 * 15);
    for (protocol, reveal) in
        [(Kit::JAGUAR, Reveal::Logits), (Kit::JAGUAR, Reveal::Label), (Kit::CHEETAH, Reveal::Logits)]
    {
        let bundle = everything();
        let choices = Choices::standard(&bundle.model.network, protocol);
        let service = Service::new(bundle, choices, reveal).unwrap();
        let complete = Scratch::new(&format!("faults-{protocol}-{reveal:?}"));
        // What had passed, sent and received, when the query was asked for, and at the result.
        let attempt = |cache: &Scratch, fault: Fault| {
            let (a, b) = memory_transports();
            let (recorder, transcript) = Recorder::hashing(a);
            thread::scope(|scope| {
                let server = scope.spawn(|| service.serve(Channel::new(b), &mut |_| ()));
                let mut start = (0, 0);
                let result = connect(Channel::new(Faulty::new(recorder, fault)), &Limits::default())
                    .and_then(|connected| connected.prepare_client(&cache.0))
                    .and_then(|ready| {
                        start = transcript.lengths();
                        ready.with_timeline().prepare_query(&mut NoProgress)?.run(&x, &mut NoProgress)
                    });
                let end = transcript.lengths();
                let ended = result.map(|(_, _, ready)| ready.leave());
                let served = server.join().expect("the server does not panic");
                (start, end, ended.is_ok(), served.is_ok())
            })
        };
        // Without a hint, and with one.
        let sound = [(); 2].map(|()| {
            let (start, end, ended, served) = attempt(&complete, Fault::Silence(u64::MAX));
            assert!(ended && served);
            (start, end)
        });
        for i in 0..10u64 {
            let (start, end) = sound[(i % 2) as usize];
            let between = |from: u64, to: u64| from + (to - from) * (2 * i + 1) / 20;
            let (sent, received) = (between(start.0 + 32, end.0), between(start.1, end.1 - 4096));
            for (fault, cut) in [
                (Fault::CutSent(sent), true),
                (Fault::CutReceived(received), true),
                (Fault::FlipSent { byte: sent, bit: (i % 8) as u8 }, false),
                (Fault::FlipReceived { byte: received, bit: (i % 8) as u8 }, false),
            ] {
                let fresh = (i % 2 == 0).then(|| Scratch::new(&format!("fault-{protocol}-{reveal:?}-{i}")));
                let (_, _, ended, served) = attempt(fresh.as_ref().unwrap_or(&complete), fault);
                assert!(!cut || !ended || !served, "{fault:?}");
            }
        }
    }
}

#[test]
fn another_version_is_named_on_both_sides() {
    let service = service(everything());
    let (answer, served) = session(&service, |mut channel| {
        channel.send_message(&crate::handshake::Hello { version: 77 }).unwrap();
        channel.recv_message::<crate::handshake::Hello>("greeting", 100).unwrap().version
    });
    assert_eq!(answer, PROTOCOL_VERSION);
    assert!(matches!(served, Err(EngineError::Version { theirs: 77, .. })));
}

#[test]
fn bundles_are_checked() {
    let folder = Scratch::new("bundle");
    let path = folder.0.join("model.jaguar");
    let bundle = everything();
    bundle.write(&path).unwrap();
    assert_eq!(Bundle::read(&path, kit().operators()).unwrap().id(), bundle.id());
    let whole = std::fs::read(&path).unwrap();
    for (broken, what) in [
        (&whole[..20], "cut off"),
        (&whole[..whole.len() - 1], "damaged"),
        (&b"\x08\x08 an ONNX file"[..], "compile"),
        (&b""[..], "not a compiled model (0 bytes)"),
    ] {
        std::fs::write(&path, broken).unwrap();
        let Err(error) = Bundle::read(&path, kit().operators()) else { panic!("{what}: accepted") };
        assert!(error.to_string().contains(what), "{error}");
    }
    assert!(Bundle::read(&folder.0.join("nothing"), kit().operators()).is_err());
    // Another secret, another name: the name tells nothing of the model.
    assert_ne!(everything().id(), bundle.id());
}

#[test]
fn unsound_choices_are_refused() {
    let good = standard(&everything());
    let cases = [
        (Choices { modulus_bits: 54, ..good.clone() }, "54"),
        (Choices { digits: vec![4; 3], ..good.clone() }, "3 nodes"),
        (Choices { digits: vec![5; good.digits.len()], ..good }, "5 bits"),
    ];
    for (choices, named) in cases {
        let error = Service::new(everything(), choices, Reveal::Logits).err().expect("refused");
        assert!(error.to_string().contains(named), "{error}");
    }
}
