// Times of SEAL's BFV operations on one thread, for run.py: N = 8192 and SEAL's own default primes for 128 bits.
//
// Prints lines of "name<TAB>microseconds" on a core: the medians of so many rounds as the first argument says, each of
// some calls in a row. The names are those of `jaguar-bench hyena --only operations`.

#include <seal/seal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace {

// Microseconds that this process had a core: what else the machine does hardly counts.
double busy() {
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return 1e6 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_nsec);
}

class Rounds {
public:
    // Runs `work` `times` times and keeps the mean.
    void time(const std::string& name, int times, const std::function<void()>& work) {
        const double start = busy();
        for (int i = 0; i < times; i++) work();
        const double spent = busy() - start;
        auto known = std::find_if(rounds.begin(), rounds.end(), [&](const auto& entry) { return entry.first == name; });
        if (known == rounds.end()) known = rounds.insert(rounds.end(), {name, {}});
        known->second.push_back(spent / times);
    }

    void print() {
        for (auto& [name, seconds] : rounds) {
            std::sort(seconds.begin(), seconds.end());
            std::printf("%s\t%.3f\n", name.c_str(), seconds[seconds.size() / 2]);
        }
    }

private:
    std::vector<std::pair<std::string, std::vector<double>>> rounds;
};

}  // namespace

int main(int argc, char** argv) {
    using namespace seal;
    const int repeats = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
    const std::size_t n = 8192;
    EncryptionParameters parameters(scheme_type::bfv);
    parameters.set_poly_modulus_degree(n);
    parameters.set_coeff_modulus(CoeffModulus::BFVDefault(n));
    parameters.set_plain_modulus(PlainModulus::Batching(n, 42));
    SEALContext context(parameters);

    KeyGenerator generator(context);
    PublicKey public_key;
    generator.create_public_key(public_key);
    GaloisKeys galois;
    generator.create_galois_keys(std::vector<int>{1}, galois);
    Encryptor encryptor(context, public_key, generator.secret_key());
    Decryptor decryptor(context, generator.secret_key());
    Evaluator evaluator(context);
    BatchEncoder encoder(context);

    std::vector<std::uint64_t> slots(n), decoded;
    for (std::size_t i = 0; i < n; i++) slots[i] = i * 2654435761u % 4000000007u;
    Plaintext plain, values, out_plain;
    encoder.encode(slots, plain);
    encoder.encode(slots, values);
    evaluator.transform_to_ntt_inplace(values, context.first_parms_id());
    Ciphertext coefficients, transformed, sum, out;
    encryptor.encrypt(plain, coefficients);
    transformed = coefficients;
    evaluator.transform_to_ntt_inplace(transformed);

    Rounds rounds;
    for (int round = 0; round < repeats; round++) {
        sum = transformed;
        rounds.time("both transforms of a ciphertext", 16, [&] {
            evaluator.transform_from_ntt_inplace(sum);
            evaluator.transform_to_ntt_inplace(sum);
        });
        rounds.time("encode", 16, [&] { encoder.encode(slots, out_plain); });
        rounds.time("encrypt under the secret", 4, [&] { encryptor.encrypt_symmetric(plain, out); });
        rounds.time("encrypt under the public key", 4, [&] { encryptor.encrypt(plain, out); });
        rounds.time("decrypt and decode", 4, [&] {
            decryptor.decrypt(coefficients, out_plain);
            encoder.decode(out_plain, decoded);
        });
        sum = transformed;
        rounds.time("add", 16, [&] { evaluator.add_inplace(sum, transformed); });
        sum = transformed;
        rounds.time("plaintext product", 16, [&] { evaluator.multiply_plain_inplace(sum, values); });
        rounds.time("rotation", 4, [&] { evaluator.rotate_rows(coefficients, 1, galois, out); });
        rounds.time("modulus switch", 4, [&] { evaluator.mod_switch_to_next(coefficients, out); });
    }
    rounds.print();
}
