// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <regex>

#include "config/keys.h"

namespace sluice {
namespace {

// The whole message of a refusal, as the command prints it; "" when the text is accepted.
std::string refusal(const std::string& text, int64_t devices = 0) {
  try {
    parse_config(text, "p.toml", devices);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::usage);
    return error.what();
  }
}

std::string without_comments(const std::string& text) { return std::regex_replace(text, std::regex(" *#[^\n]*"), ""); }

constexpr const char* full = R"toml([mesh]
axes = { pp = 2, dp = 4, tp = 2 }
[mesh.servers]
pool = "ps"
axes = { shard = 4 }
[train]
global_batch = 512
micro_batch = 16
clip_norm = 1
reduction_order = "exact"
[pipeline]
schedule = "gpipe"
[zero]
stage = 1
[plugins]
ops = ["ops/my \"op\".so", "/abs.so"]
[[rule]]
match = 'layers\.\d+\.mlp\.fc1\.weight'
sbp = { tp = "S(0)" }
stage = 1
[[rule]]
match = 'table'
mesh = "servers"
sbp = { shard = "S(0)" }
staleness = 4
)toml";

TEST(Config, ReadsEveryKindOfKey) {
  Config c = parse_config(full, "conf/p.toml", 20);
  ASSERT_EQ(c.mesh.axes.size(), 3u);
  EXPECT_EQ(c.mesh.axes[0].name, "pp");  // the file's order, not the alphabet's
  EXPECT_EQ(c.mesh.axes[1].name, "dp");
  EXPECT_EQ(c.mesh.axes[1].size, 4);
  EXPECT_EQ(c.mesh.axes[2].name, "tp");
  EXPECT_EQ(c.meshes.at(0).name, "servers");
  EXPECT_EQ(c.meshes.at(0).pool, "ps");
  EXPECT_EQ(c.global_batch.value, 512);
  EXPECT_EQ(c.global_batch.place, (Place{"conf/p.toml", 7}));
  EXPECT_EQ(c.clip_norm.value, 1.0);  // an integer is a number
  EXPECT_EQ(c.reduction_order.value, "exact");
  EXPECT_EQ(c.schedule.value, "gpipe");
  EXPECT_EQ(c.zero_axes, std::vector<std::string>{"dp"});
  EXPECT_EQ(c.plugins, (std::vector<std::string>{"conf/ops/my \"op\".so", "/abs.so"}));
  ASSERT_EQ(c.rules.size(), 2u);
  EXPECT_EQ(c.rules[0].sbp.at("tp"), "S(0)");
  EXPECT_EQ(c.rules[0].stage, 1);
  EXPECT_EQ(c.rules[1].mesh, "servers");
  EXPECT_EQ(c.rules[1].staleness, 4);
  EXPECT_EQ(c.rules[1].place.line, 21);
  EXPECT_EQ(devices_of(c), 20);
}

TEST(Config, DefaultsAreTheTables) {
  Config c = default_config();
  EXPECT_EQ(c.global_batch.value, 0);
  EXPECT_EQ(c.micro_batch.value, 0);
  EXPECT_EQ(c.clip_norm.value, 0.0);
  EXPECT_EQ(c.seed.value, -1);
  EXPECT_EQ(c.reduction_order.value, "fast");
  EXPECT_EQ(c.schedule.value, "1f1b");
  EXPECT_TRUE(c.coalesce.value);
  EXPECT_TRUE(c.memory_reuse.value);
  EXPECT_EQ(c.device.value, "cpu");
  EXPECT_EQ(devices_of(c), 1);
  EXPECT_FALSE(c.seed.place.known());
}

TEST(Config, PrintParsesBack) {
  for (std::string text :
       {std::string(), std::string(full), std::string("[train]\nclip_norm = 0.1\nseed = 0\n"),
        std::string("[mesh.\"a b.\\n\"]\naxes = { x = 2 }\n[device]\nkind = \"sim\"\nthreads = 3\n")}) {
    std::string once = text_of(parse_config(text, "/conf/a\nb.toml"));
    EXPECT_EQ(without_comments(text_of(parse_config(once, "again.toml"))), without_comments(once)) << once;
  }
}

TEST(Config, PrintSaysWhereAValueComesFrom) {
  EXPECT_EQ(text_of(parse_config("[train]\nglobal_batch = 128\n[[rule]]\nmatch = 'w\\.\"'\nsbp = {}\n", "p.toml")),
            R"toml([mesh]
axes = {}
pool = ""

[train]
global_batch = 128  # p.toml:2
# micro_batch is not set: the global batch
clip_norm = 0.0  # default
# seed is not set: the job's seed
reduction_order = "fast"  # default

[pipeline]
schedule = "1f1b"  # default

[zero]
stage = 0  # default
axes = []

[memory]
reuse = true  # default

[device]
kind = "cpu"  # default
# threads is not set: the cores, divided by the devices of this host

[plugins]
ops = []

[debug]
coalesce = true  # default

[[rule]]
match = "w\\.\""
sbp = {}
mesh = ""
# stage is not set: planned
staleness = 0
)toml");
}

TEST(Config, SchemaExplainsEveryKey) {
  std::string schema = config_schema();
  for (auto& key : keys())
    if (key.member.index() != 0) {
      EXPECT_NE(schema.find(std::string(key.name) + ": " + std::string(key.type)), std::string::npos) << key.name;
      EXPECT_GT(key.doc.size(), 10u) << key.name;
    }
  EXPECT_EQ(schema.find("embedding"), std::string::npos);  // what is not supported yet is not offered
}

// The guide's page is the schema under a heading. To renew it: sluice config schema, between the fences.
TEST(Config, TheGuideIsTheSchema) {
  std::ifstream in("docs/guide/config.md");
  ASSERT_TRUE(in.good()) << "run the test in the project's folder";
  std::string page((std::istreambuf_iterator<char>(in)), {});
  size_t begin = page.find("```text\n"), end = page.rfind("```");
  ASSERT_LT(begin, end);
  EXPECT_EQ(page.substr(begin + 8, end - begin - 8), config_schema());
}

struct Case {
  const char* text;
  const char* message;
  int64_t devices = 0;
};

class Refusals : public testing::TestWithParam<Case> {};
TEST_P(Refusals, SayWhatWhereAndWhatNext) {
  EXPECT_EQ(refusal(GetParam().text, GetParam().devices), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Keys, Refusals,
    testing::Values(
        Case{"[train]\ngloabl_batch = 1\n",
             "p.toml:2: unknown key 'gloabl_batch' in [train]\n  next: did you mean 'global_batch'?"},
        Case{"[trian]\n", "p.toml:1: unknown section 'trian'\n  next: did you mean [train]?"},
        Case{"\n[train]\nstage = 1\n", "p.toml:3: unknown key 'stage' in [train]\n  next: 'stage' belongs to [zero]"},
        Case{"micro_batch = 1\n", "p.toml:1: unknown key 'micro_batch'\n  next: 'micro_batch' belongs to [train]"},
        Case{"[mesh]\ndp = 4\n", "p.toml:2: unknown key 'dp' in [mesh]\n  next: write axes = { dp = 4 }"},
        Case{"[mesh]\naxis = { dp = 4 }\n", "p.toml:2: unknown key 'axis' in [mesh]\n  next: did you mean 'axes'?"},
        Case{"[pipeline]\nzzz = 4\n", "p.toml:2: unknown key 'zzz' in [pipeline]\n  next: [pipeline] has: schedule"},
        Case{"[train]\nglobal_batch = \"128\"\n", "p.toml:2: 'global_batch': expected an integer, found a string"},
        Case{"[train]\nglobal_batch = 1.5\n", "p.toml:2: 'global_batch': expected an integer, found a float"},
        Case{"[train]\nclip_norm = true\n", "p.toml:2: 'clip_norm': expected a number, found a boolean"},
        Case{"[debug]\ncoalesce = 0\n", "p.toml:2: 'coalesce': expected true or false, found an integer"},
        Case{"[device]\nkind = 1979-05-27\n", "p.toml:2: 'kind': expected a string, found a date or time"},
        Case{"train = 3\n", "p.toml:1: 'train': expected a table, found an integer"},
        Case{"[zero]\nstage = 1\naxes = \"dp\"\n", "p.toml:3: 'axes': expected a list of strings, found a string"},
        Case{"[zero]\nstage = 1\naxes = [3]\n", "p.toml:3: 'axes': expected a list of strings only, found an integer"},
        Case{"[train]\nglobal_batch = 0\n",
             "p.toml:2: 'global_batch' is 0; it must be 1 or more\n  next: leave it out for: fit's batch="},
        Case{"[train]\nclip_norm = nan\n", "p.toml:2: 'clip_norm' is nan; it must be 0 or more"},
        Case{"[train]\nclip_norm = 1e308\n", "p.toml:2: 'clip_norm' is 1e+308; it must be 0 or more"},
        Case{"[pipeline]\nschedule = \"1f1B\"\n",
             "p.toml:2: '1f1B' is no schedule; there are: 1f1b, gpipe\n  next: did you mean '1f1b'?"},
        Case{"[pipeline]\nschedule = \"zb_h1\"\n",
             "p.toml:2: schedule = 'zb_h1' (there are: 1f1b, gpipe) is not supported yet\n  next: leave it out"},
        Case{"[memory]\nbudget = \"20GiB\"\n",
             "p.toml:2: 'budget' in [memory] is not supported yet\n  next: leave it out"},
        Case{"[[embedding]]\nmatch = 'a'\n", "p.toml:1: [[embedding]] is not supported yet\n  next: leave it out"},
        Case{"[[rule]]\nmatch = 'a'\nstaleness = \"async\"\n",
             "p.toml:3: staleness = \"async\" is not supported yet\n  next: leave it out"},
        Case{"[[rule]]\nmatch = 'a'\nstaleness = 65\n", "p.toml:3: 'staleness' is 65; it must be 0 to 64"},
        Case{"[[rule]]\nmatch = 'a'\nstaleness = -1\n", "p.toml:3: 'staleness' is -1; it must be 0 to 64"},
        Case{"[train]\nseed = 1\nseed = 2\n",
             "p.toml:3: bad TOML at column 8: Error while parsing key-value pair: cannot redefine existing integer "
             "'seed'"},
        Case{"[train]\nglobal_batch = 18446744073709551616\n",
             "p.toml:2: bad TOML at column 36: Error while parsing decimal integer: '18446744073709551616' is not "
             "representable in 64 bits"}));

INSTANTIATE_TEST_SUITE_P(
    Meshes, Refusals,
    testing::Values(
        Case{"[mesh]\naxes = { dp = 2, tp = 2 }\n",
             "p.toml:2: the meshes need 4 devices, but there are 6: [mesh] dp 2 * tp 2 = 4\n"
             "  next: the product of the axes is the number of devices; one axis may be -1",
             6},
        Case{"[train]\nseed = 1\n",
             "p.toml: the meshes need 1 device, but there are 4: [mesh] has no axes: 1\n"
             "  next: the product of the axes is the number of devices; one axis may be -1",
             4},
        Case{"[mesh]\naxes = { dp = -1, tp = 2 }\n[mesh.s]\naxes = { shard = 2 }\n",
             "p.toml:2: 5 devices do not fit: [mesh] dp -1 * tp 2 = 2, [mesh.s] shard 2\n"
             "  next: 3 of them are left for [mesh], in multiples of 2",
             5},
        Case{"[mesh]\naxes = { dp = -1 }\n",
             "p.toml:2: axis 'dp' is -1, but the number of devices is not known\n"
             "  next: write its size, or give --devices N"},
        Case{"[mesh]\naxes = { dp = -1, tp = -1 }\n",
             "p.toml:2: two axes are -1: 'dp' and 'tp'\n  next: one axis at most is what is left of the devices", 4},
        Case{"[mesh]\naxes = { dp = 0 }\n",
             "p.toml:2: axis 'dp' has size 0\n  next: a size is 1 to 65536, or -1 for what is left of the devices"},
        Case{"[mesh]\naxes = { dp = 65536, tp = 65536, sp = 65536, a = 65536 }\n",
             "p.toml:2: the axes need more than 1048576 devices"},
        Case{"[mesh]\naxes = { dp = 2, pp = 2 }\n",
             "p.toml:2: 'pp' must be the first axis\n  next: stages are the outermost links: write pp before the "
             "others"},
        Case{"[mesh]\naxes = { dp = 2, dp = 2 }\n",
             "p.toml:2: bad TOML at column 23: Error while parsing key-value pair: cannot redefine existing integer "
             "'dp'"},
        Case{"[mesh]\naxes = { \"d p\" = 2 }\n",
             "p.toml:2: 'd p' is no name of an axis\n  next: use letters, digits and '_', at most 32 of them"},
        Case{"[mesh.s]\npool = \"ps\"\n", "p.toml:1: [mesh.s] has no axes\n  next: write axes = { shard = 4 }"},
        Case{"[mesh.client]\naxes = { x = 1 }\n",
             "p.toml:1: the name 'client' of a mesh is taken\n"
             "  next: the main mesh is [mesh]; give a further one a name of its own"},
        Case{"[train]\nglobal_batch = 8\nmicro_batch = 16\n",
             "p.toml:3: micro_batch = 16 is larger than global_batch = 8\n  next: a step is cut into micro-batches"},
        Case{"[zero]\nstage = 1\n",
             "p.toml:2: [zero] is over axis 'dp', which [mesh] lacks\n"
             "  next: name an axis that splits the batch, such as \"dp\""},
        Case{"[mesh]\naxes = { dp = 2 }\n[zero]\naxes = [\"dp\"]\n",
             "p.toml:4: [zero] has axes but no stage\n  next: write stage = 1"}));

INSTANTIATE_TEST_SUITE_P(
    Rules, Refusals,
    testing::Values(
        Case{"[[rule]]\nsbp = {}\n",
             "p.toml:1: the rule has no match\n  next: write match = 'REGULAR EXPRESSION'; '.*' matches all"},
        Case{"[rule]\nmatch = 'a'\n", "p.toml:1: 'rule' is a list of tables\n  next: write [[rule]]"},
        Case{"rule = [3]\n", "p.toml:1: 'rule': expected a table, found an integer"},
        Case{"[[rule]]\nmatch = 'a'\nsbp = { tp = \"S(8)\" }\n",
             "p.toml:3: 'S(8)' on axis 'tp' is no SBP\n  next: write \"S(dim)\" with dim from 0 to 7, \"B\" or \"P\""},
        Case{"[mesh]\naxes = { dp = 2 }\n[[rule]]\nmatch = 'a'\nsbp = { tp = \"B\" }\n",
             "p.toml:5: the rule's sbp names axis 'tp', which [mesh] lacks\n  next: its axes: dp"},
        Case{"[mesh]\naxes = { pp = 2 }\n[[rule]]\nmatch = 'a'\nsbp = { pp = \"B\" }\n",
             "p.toml:5: the rule's sbp names 'pp'\n  next: stages are pinned with stage = N"},
        Case{"[[rule]]\nmatch = 'a'\nmesh = \"severs\"\n[mesh.servers]\naxes = { s = 2 }\n",
             "p.toml:3: there is no [mesh.'severs']\n  next: did you mean 'servers'?"},
        Case{"[[rule]]\nmatch = 'a'\nmesh = \"x\"\n",
             "p.toml:3: there is no [mesh.'x']\n  next: describe it as [mesh.NAME]"},
        Case{"[mesh]\naxes = { pp = 2 }\n[[rule]]\nmatch = 'a'\nstage = 2\n",
             "p.toml:5: stage 2 is none of the 2 stages of [mesh]\n  next: stages run from 0 to 1"},
        Case{"[[rule]]\nmatch = 'a'\nstage = 0\n",
             "p.toml:3: stage 0 is none of the 0 stages of [mesh]\n  next: stages are cut by an axis 'pp' of [mesh]"}));

TEST(Config, RegularExpressionsAreChecked) {
  EXPECT_NE(refusal("[[rule]]\nmatch = 'a('\n").find("p.toml:2: match = 'a(' is no regular expression"),
            std::string::npos);
  std::string open(257, '(');
  EXPECT_EQ(refusal("[[rule]]\nmatch = '" + open + "'\n"),
            "p.toml:2: match has 257 characters\n  next: 256 are allowed");
  EXPECT_NE(refusal("[[rule]]\nmatch = '((a{999}){999}){999}'\n"), "");  // too large to compile
}

TEST(Config, ThirtyMisspeltKeysAreCaught) {
  std::mt19937 random(7);
  int wrong = 0;
  for (auto& key : keys()) {
    if (key.member.index() == 0 || key.section == "mesh" || key.section == "rule") continue;
    for (int i = 0; i < 3; ++i) {
      std::string name(key.name);
      std::swap(name[random() % name.size()], name[random() % name.size()]);
      name.insert(random() % name.size(), 1, 'x');
      std::string message = refusal("[" + std::string(key.section) + "]\n" + name + " = 1\n");
      EXPECT_NE(message.find("p.toml:2: unknown key"), std::string::npos) << name;
      wrong += message.find("next: ") == std::string::npos;
    }
  }
  EXPECT_EQ(wrong, 0);
}

// ---- hostile text ---------------------------------------------------------------------------------------------------

TEST(Hostile, TooLargeOrTooDeep) {
  EXPECT_EQ(refusal(std::string((1 << 20) + 1, '\n')), "p.toml: the file has more than 1048576 bytes");
  std::string deep = "a";
  for (int i = 0; i < 200'000; ++i) deep += ".a";
  EXPECT_EQ(refusal(deep + " = 1\n"), "p.toml: the file nests its keys too deep");
  EXPECT_EQ(refusal("[" + deep + "]\n"), "p.toml: the file nests its keys too deep");
  EXPECT_NE(refusal("a = " + std::string(100'000, '[')).find("bad TOML"), std::string::npos);
  std::string tables;
  for (int i = 0; i < 100'000; ++i) tables += "{a=";
  EXPECT_NE(refusal("a = " + tables).find("bad TOML"), std::string::npos);
  EXPECT_EQ(refusal("[device]  # " + std::string(5000, '.') + "\nkind = \"cpu\"\n"), "");  // dots of a comment
}

TEST(Hostile, OddBytesStayOutOfMessages) {
  EXPECT_EQ(refusal("\"a\\u0007\\n\xC3\xA9\" = 1\n").substr(0, 29), "p.toml:1: unknown key 'a??\xC3\xA9'");
  EXPECT_NE(refusal("\xFF\xFE = 1\n").find("bad TOML"), std::string::npos);
  EXPECT_NE(refusal(std::string("a\0b = 1\n", 8)).find("bad TOML"), std::string::npos);
  EXPECT_NE(refusal("\"" + std::string(10'000, 'k') + "\" = 1\n").find("kkk...'"), std::string::npos);
  EXPECT_NE(refusal("[plugins]\nops = [\"a\\u0000b\"]\n").find("zero byte"), std::string::npos);
}

TEST(Hostile, MutatedFilesAreReadOrRefused) {
  std::mt19937 random(42);
  std::string text = full;
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bad = text;
    for (int n = 1 + int(random() % 4); n > 0; --n) {
      size_t at = random() % bad.size();
      switch (random() % 3) {
        case 0: bad[at] = char(random()); break;
        case 1: bad.erase(at, random() % 20); break;
        default: bad.insert(at, text.substr(random() % text.size(), random() % 20));
      }
      if (bad.empty()) bad = "a";
    }
    accepted += refusal(bad, int64_t(random() % 30)).empty();
  }
  EXPECT_GT(accepted, 0);
}

TEST(Config, LoadsFilesAndRefusesWhatIsNone) {
  auto file = std::filesystem::temp_directory_path() / ("sluice_config_" + std::to_string(std::random_device{}()));
  std::ofstream(file) << "[train]\nseed = 3\n";
  EXPECT_EQ(load_config(file.string()).seed.value, 3);
  std::ofstream(file) << std::string((1 << 20) + 1, ' ');
  EXPECT_THROW(load_config(file.string()), Error);
  std::filesystem::remove(file);
  for (auto [path, why] : {std::pair{file.string(), "no such file"}, {std::string("/"), "this is no plain file"}}) {
    try {
      load_config(path);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::usage);
      EXPECT_EQ(error.message(), why);
      EXPECT_EQ(error.place().file, path);
    }
  }
}

TEST(Nearest, FindsSlipsAndLeavesStrangersAlone) {
  std::vector<std::string> words{"global_batch", "micro_batch", "seed", "dp", "reduction_order"};
  EXPECT_EQ(nearest("Global-Batch", words), "global_batch");
  EXPECT_EQ(nearest("micro_bacth", words), "micro_batch");
  EXPECT_EQ(nearest("sed", words), "seed");
  EXPECT_EQ(nearest("reduction", words), "reduction_order");
  EXPECT_EQ(nearest("learning_rate", words), "");
  EXPECT_EQ(nearest("", words), "");
  EXPECT_EQ(nearest("x", {}), "");
}

}  // namespace
}  // namespace sluice
