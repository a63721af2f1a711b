package relu

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Option is one composition of polynomials.
type Option struct {
	name      string
	composite [][]float64
	error     float64
}

// The paper's three polynomials (Appendix B), and compositions that `params/relu.py` computes: `--claims` compares them. Rows are
// the coefficients of x, x^3, x^5, ...
var options = []Option{
	minimax("7-15", 0.00378, [][]float64{
		{8.87668607363408, -46.8101262015427, 83.7245880028455, -45.3879269608607},
		{3.97215104644551, -13.0888933004502, 28.5754224761184, -36.2331270263167, 26.9461514978694, -11.568533900262, 2.64938856225492, -0.25024290389757},
	}),
	minimax("7-7-7", 0.00160661, [][]float64{
		{10.2622658318943, -57.6349100723934, 105.148014328695, -57.5573974843814},
		{3.54987709926292, -4.82168911066968, 2.52841901550894, -0.416213851039078},
		{2.28431277109369, -2.38975199036881, 1.42354685692318, -0.32114690660727},
	}),
	{"7-7-13", [][]float64{
		{10.8541842577442, -62.2833925211098, 114.369227820443, -62.8023496973074},
		{4.13976170985111, -5.84997640211679, 2.94376255659280, -0.454530437460152},
		{
			3.29956739043733, -7.84227260291355, 12.8907764115564, -12.4917112584486,
			6.94167991428074, -2.04298067399942, 0.246407138926031,
		},
	}, 0.000903118},
	minimax("7-15-15", 0.000388122, [][]float64{
		{11.3821192241611, -66.4384478653945, 122.619615174799, -67.4976777273272},
		{8.54832577745018, -52.2190363200979, 131.434631383279, -156.674999666171, 98.4889997067918, -33.5933868699203, 5.87838953449053, -0.413335572377081},
		{3.55055927822783, -9.9957314614842, 20.1711747751004, -25.137627789791, 19.2314961615246, -8.78361260334961, 2.19387308950758, -0.230245941040145},
	}),
	minimax("15-15-15", 0.000193531, [][]float64{
		{24.1671952598687, -655.275494130778, 6518.78276166784, -29872.377653634, 71405.6475461827, -92113.9550582887, 60774.675311843, -16081.5916604394},
		{8.2558313011018, -49.6954891224635, 125.059315405128, -149.622825142913, 94.5492356440343, -32.4443035469836, 5.71417460434431, -0.404511763398452},
		{3.47630020549006, -9.48436170653895, 18.8043195140233, -23.3020971038844, 17.9046232046977, -8.27982532699971, 2.10751481831556, -0.226575180311521},
	}),
}

func minimax(name string, error float64, composite [][]float64) Option {
	return Option{name, composite, error}
}

// Default is the name of the paper's composition.
const Default = "7-7-13"

// Options are all, from the fewest levels to the most.
func Options() []Option { return slices.Clone(options) }

// ByName finds an option by its degrees, e.g. "7-7-13"; no name stands for [Default].
func ByName(name string) (Option, error) {
	if name == "" {
		name = Default
	}
	names := make([]string, len(options))
	for i, option := range options {
		if option.name == name {
			return option, nil
		}
		names[i] = option.name
	}
	return Option{}, fmt.Errorf("relu: no polynomial is called %q; there are %s", name, strings.Join(names, ", "))
}

// Name is the degrees, the first polynomial's first.
func (o Option) Name() string { return o.name }

// Error bounds |ReLU(x) - Plain(x)| for |x| ≤ 1, to four digits.
func (o Option) Error() float64 { return o.error }

// Levels are those of the polynomials and of the last product.
func (o Option) Levels() int {
	levels := 1
	for _, f := range o.composite {
		levels += int(math.Ceil(math.Log2(float64(2 * len(f)))))
	}
	return levels
}

// odd evaluates a polynomial of odd powers.
func odd(coefficients []float64, x float64) float64 {
	sum := 0.0
	for i := len(coefficients) - 1; i >= 0; i-- {
		sum = sum*x*x + coefficients[i]
	}
	return sum * x
}

// Plain is what [Evaluator.Evaluate] computes, without noise.
func (o Option) Plain(x float64) float64 {
	sign := x
	for _, f := range o.composite {
		sign = odd(f, sign)
	}
	return x * (1 + sign) / 2
}
