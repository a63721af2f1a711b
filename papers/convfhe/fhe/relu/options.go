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
