// Package keys makes, writes and reads the keys of the one-round protocol.
//
// The client keeps [Client]. The server gets [Server]: keys that rotate, relinearise, raise the modulus and pack, and a public
// key with which it makes its answers look fresh. Each has just the moduli of the level at which it is used; that makes the keys
// of StoC and of packing small. What goes over the wire is the half of each key that is not random, and a seed for the other.
package keys

import (
	"bufio"
	"fmt"
	"io"
	"slices"

	"github.com/tuneinsight/lattigo/v6/circuits/ckks/bootstrapping"
	"github.com/tuneinsight/lattigo/v6/core/rlwe"

	"jaguar/fhe/packing"
	"jaguar/fhe/parameters"
	"jaguar/fhe/residues"
)

// PackingLevelP is the last modulus of P that keys for packing use: two of them cover q0 and q1.
const PackingLevelP = 1

// Client is what stays with the client.
type Client struct {
	set    *parameters.Set
	secret *rlwe.SecretKey
}

// NewClient draws a secret.
func NewClient(set *parameters.Set) *Client {
	return &Client{set: set, secret: rlwe.NewKeyGenerator(set.CKKS()).GenSecretKeyNew()}
}

// Secret is the secret key.
func (c *Client) Secret() *rlwe.SecretKey { return c.secret }

// Set is the parameter set.
func (c *Client) Set() *parameters.Set { return c.set }

// Server is what the server computes with.
type Server struct {
	set     *parameters.Set
	circuit *bootstrapping.EvaluationKeys
	packing *rlwe.MemEvaluationKeySet
	public  *rlwe.PublicKey
}

// Set is the parameter set.
func (s *Server) Set() *parameters.Set { return s.set }

// Circuit are the keys of ModUp, CtoS, sine, ReLU and StoC.
func (s *Server) Circuit() *bootstrapping.EvaluationKeys { return s.circuit }

// Packing are the keys for [packing.Packer].
func (s *Server) Packing() *rlwe.MemEvaluationKeySet { return s.packing }

// Public encrypts at [parameters.Set.InputLevel].
func (s *Server) Public() *rlwe.PublicKey { return s.public }

// kind says which of the keys one is.
type kind int

const (
	relinearise kind = iota
	rotate
	pack
	toEphemeral
	fromEphemeral
)

// spec is one key: its kind, the exponent of its automorphism (rotate and pack), and the last moduli that it has.
type spec struct {
	kind           kind
	element        uint64
	levelQ, levelP int
}

// specs lists the keys in the order in which they are written.
func specs(set *parameters.Set) []spec {
	params, circuit := set.CKKS(), set.Circuit()
	top, levelP := params.MaxLevel(), params.MaxLevelP()
	levels := map[uint64]int{}
	need := func(level int, elements ...uint64) {
		for _, element := range elements {
			if element != 1 {
				levels[element] = max(levels[element], level)
			}
		}
	}
	need(circuit.SlotsToCoeffsParameters.LevelQ, circuit.SlotsToCoeffsParameters.GaloisElements(params)...)
	need(circuit.Mod1ParametersLiteral.LevelQ, params.GaloisElementForComplexConjugation())
	need(top, circuit.CoeffsToSlotsParameters.GaloisElements(params)...)
	for i := circuit.LogMaxSlots(); i < params.LogN()-1; i++ {
		need(top, params.GaloisElement(1<<i))
	}
	elements := make([]uint64, 0, len(levels))
	for element := range levels {
		elements = append(elements, element)
	}
	slices.Sort(elements)

	all := []spec{
		{kind: relinearise, levelQ: circuit.Mod1ParametersLiteral.LevelQ, levelP: levelP},
		{kind: toEphemeral, levelQ: 0, levelP: 0},
		{kind: fromEphemeral, levelQ: top, levelP: levelP},
	}
	for _, element := range elements {
		all = append(all, spec{kind: rotate, element: element, levelQ: levels[element], levelP: levelP})
	}
	for _, element := range packing.Elements(params.LogN()) {
		all = append(all, spec{kind: pack, element: element, levelQ: set.InputLevel(), levelP: PackingLevelP})
	}
	return all
}

// shape are the sizes that Lattigo needs to allocate a key, without its random half.
func (s spec) shape() rlwe.EvaluationKeyParameters {
	return rlwe.EvaluationKeyParameters{LevelQ: &s.levelQ, LevelP: &s.levelP, Compressed: true}
}

// WireBytes is how many bytes [Write] writes.
func WireBytes(set *parameters.Set) int64 {
	total := int64(len(header(set)))
	for _, s := range specs(set) {
		total += 32 + polynomials(set, s.levelQ, s.levelP)*int64(s.levelQ+1+s.levelP+1)*int64(set.CKKS().N())*8
	}
	return total + int64(2*(set.InputLevel()+1)*set.CKKS().N()*8)
}

// MemoryBytes is how much memory the server's keys take.
func MemoryBytes(set *parameters.Set) int64 { return 2 * WireBytes(set) }

// ClientMemoryBytes estimates what [Write] takes, which holds one key at a time: three of the largest, since the garbage collector lets
// memory double and a key is made from the secret at all moduli, and a fixed part.
func ClientMemoryBytes(set *parameters.Set) int64 {
	largest := int64(0)
	for _, s := range specs(set) {
		largest = max(largest, polynomials(set, s.levelQ, s.levelP)*int64(s.levelQ+1+s.levelP+1)*int64(set.CKKS().N())*8)
	}
	return 3*largest + 256<<20
}

// polynomials is how many digits a key at these levels has.
func polynomials(set *parameters.Set, levelQ, levelP int) int64 {
	return int64((levelQ + 1 + levelP) / (levelP + 1))
}

// generator makes keys one after the other.
type generator struct {
	set       *parameters.Set
	kgen      *rlwe.KeyGenerator
	secret    *rlwe.SecretKey
	ephemeral *rlwe.SecretKey
}

func newGenerator(client *Client) *generator {
	kgen := rlwe.NewKeyGenerator(client.set.CKKS())
	return &generator{
		set: client.set, kgen: kgen, secret: client.secret,
		ephemeral: kgen.GenSecretKeyWithHammingWeightNew(client.set.EphemeralWeight()),
	}
}

// key makes one.
func (g *generator) key(s spec) *rlwe.EvaluationKey {
	switch s.kind {
	case relinearise:
		return &g.kgen.GenRelinearizationKeyNew(g.secret, s.shape()).EvaluationKey
	case toEphemeral:
		return g.kgen.GenEvaluationKeyNew(g.secret, g.ephemeral, s.shape())
	case fromEphemeral:
		return g.kgen.GenEvaluationKeyNew(g.ephemeral, g.secret, s.shape())
	default:
		return &g.kgen.GenGaloisKeyNew(s.element, g.secret, s.shape()).EvaluationKey
	}
}

// publicKey is an encryption of zero at the input level.
func (g *generator) publicKey() (*rlwe.PublicKey, error) {
	public := &rlwe.PublicKey{Value: rlwe.NewVectorQP(g.set.CKKS(), 2, g.set.InputLevel(), -1)}
	ct := rlwe.NewCiphertext(g.set.CKKS(), 1, g.set.InputLevel())
	ct.IsNTT, ct.IsMontgomery = true, true
	if err := rlwe.NewEncryptor(g.set.CKKS(), g.secret).EncryptZero(ct); err != nil {
		return nil, fmt.Errorf("keys: public key: %w", err)
	}
	public.Value[0].Q, public.Value[1].Q = ct.Value[0], ct.Value[1]
	return public, nil
}

// Generate makes the server's keys in memory.
func Generate(client *Client) (*Server, error) {
	generator := newGenerator(client)
	collected := newCollector(client.set)
	for _, s := range specs(client.set) {
		if err := collected.add(s, generator.key(s)); err != nil {
			return nil, err
		}
	}
	public, err := generator.publicKey()
	if err != nil {
		return nil, err
	}
	return collected.server(public), nil
}

// Packer makes only the keys for packing, and a packer with them.
func Packer(client *Client) (*packing.Packer, error) {
	generator, collected := newGenerator(client), newCollector(client.set)
	for _, s := range specs(client.set) {
		if s.kind == pack {
			if err := collected.add(s, generator.key(s)); err != nil {
				return nil, err
			}
		}
	}
	return packing.New(client.set.CKKS(), rlwe.NewMemEvaluationKeySet(nil, collected.packings...), client.set.InputLevel())
}

// header begins what [Write] writes.
func header(set *parameters.Set) []byte {
	return fmt.Appendf(nil, "jaguar convfhe keys 1 %-32s\n", set.Name())
}

// Write makes the server's keys and writes them, [WireBytes] in all. It holds one key in memory at a time. It returns what the
// writer says.
func Write(client *Client, to io.Writer) error {
	w := bufio.NewWriterSize(to, 1<<20)
	if _, err := w.Write(header(client.set)); err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	generator := newGenerator(client)
	for _, s := range specs(client.set) {
		key := generator.key(s)
		if _, err := w.Write(key.Seed[:]); err != nil {
			return fmt.Errorf("keys: %w", err)
		}
		for _, row := range key.Value {
			for _, poly := range row {
				if err := residues.Write(w, poly[0]); err != nil {
					return fmt.Errorf("keys: %w", err)
				}
			}
		}
	}
	public, err := generator.publicKey()
	if err != nil {
		return err
	}
	for _, poly := range public.Value {
		if err := residues.Write(w, poly); err != nil {
			return fmt.Errorf("keys: public key: %w", err)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	return nil
}

// Read reads what [Write] wrote for this set. All lengths follow from the set: nothing that is read says how much to allocate.
// It fails if the set is another one, if the input ends early, or if a coefficient is not below its modulus.
func Read(set *parameters.Set, from io.Reader) (*Server, error) {
	r := bufio.NewReaderSize(from, 1<<20)
	want := header(set)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil {
		return nil, fmt.Errorf("keys: header: %w", err)
	}
	if !slices.Equal(got, want) {
		return nil, fmt.Errorf("keys: these are not keys of parameter set %q: they begin with %q", set.Name(), got)
	}
	collected := newCollector(set)
	for i, s := range specs(set) {
		key := rlwe.NewEvaluationKey(set.CKKS(), s.shape())
		key.Seed = new([32]byte)
		if _, err := io.ReadFull(r, key.Seed[:]); err != nil {
			return nil, fmt.Errorf("keys: key %d: %w", i, err)
		}
		for _, row := range key.Value {
			for _, poly := range row {
				if err := residues.Read(r, set, poly[0]); err != nil {
					return nil, fmt.Errorf("keys: key %d: %w", i, err)
				}
			}
		}
		if err := collected.add(s, key); err != nil {
			return nil, err
		}
	}
	public := &rlwe.PublicKey{Value: rlwe.NewVectorQP(set.CKKS(), 2, set.InputLevel(), -1)}
	for _, poly := range public.Value {
		if err := residues.Read(r, set, poly); err != nil {
			return nil, fmt.Errorf("keys: public key: %w", err)
		}
	}
	return collected.server(public), nil
}

// collector puts keys where Lattigo looks for them.
type collector struct {
	set                        *parameters.Set
	relin                      *rlwe.RelinearizationKey
	toEphemeral, fromEphemeral *rlwe.EvaluationKey
	rotations, packings        []*rlwe.GaloisKey
}

func newCollector(set *parameters.Set) *collector { return &collector{set: set} }

// add takes a key and makes its random half from the seed.
func (c *collector) add(s spec, key *rlwe.EvaluationKey) error {
	if err := key.Expand(c.set.CKKS(), nil); err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	galois := &rlwe.GaloisKey{GaloisElement: s.element, NthRoot: c.set.CKKS().RingQ().NthRoot(), EvaluationKey: *key}
	switch s.kind {
	case relinearise:
		c.relin = &rlwe.RelinearizationKey{EvaluationKey: *key}
	case toEphemeral:
		c.toEphemeral = key
	case fromEphemeral:
		c.fromEphemeral = key
	case rotate:
		c.rotations = append(c.rotations, galois)
	case pack:
		c.packings = append(c.packings, galois)
	}
	return nil
}

func (c *collector) server(public *rlwe.PublicKey) *Server {
	return &Server{
		set: c.set,
		circuit: &bootstrapping.EvaluationKeys{
			EvkDenseToSparse:    c.toEphemeral,
			EvkSparseToDense:    c.fromEphemeral,
			MemEvaluationKeySet: rlwe.NewMemEvaluationKeySet(c.relin, c.rotations...),
		},
		packing: rlwe.NewMemEvaluationKeySet(nil, c.packings...),
		public:  public,
	}
}
