// Forked children, runs inside runs, runs that are ended, and what the system grants: of these
// things a run may depend, and has to stay right. Children are given some seconds.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "../targets.h"
#include "checks.h"
#include "models.h"
#include "npu/host/control_groups.h"
#include "runtime/errors.h"

namespace dvm::testing {
namespace {

bool run_once(Executor& executor, int64_t n, const RunRequest& request = {}) {
  std::vector<float> data(static_cast<size_t>(n));
  for (size_t i = 0; i < data.size(); i++) data[i] = static_cast<float>(i % 7) - 3;
  const Tensor input = vector_tensor(data);
  const std::vector<Tensor> outputs = executor.run(std::span(&input, 1), {}, request);
  const auto* const y = reinterpret_cast<const float*>(outputs[0].data);
  for (size_t i = 0; i < data.size(); i++) {
    if (y[i] != speculated(data[i], n)) return false;
  }
  return true;
}

// Forks; whether the child's work was done, and within time.
template <typename Work>
void check_in_child(const Work& work, const std::string& what) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // ends it
    _exit(work() ? 0 : 1);
  }
  int status = -1;
  check(child > 0 && waitpid(child, &status, 0) == child && status == 0,
        what + ": the child ended with " + std::to_string(status));
}

// While other threads run the same and another model at changing shapes, so that workers compile
// ahead and rehearse, and outputs come and go.
void test_forks(int cores) {
  const std::string what = "forks, " + std::to_string(cores) + " cores";
  Executor shared(speculating_model(), shared_device({cores, "", 0, plain_machine()}), nullptr);
  Executor other(speculating_model(), shared_device({cores, "", 0, plain_machine()}), nullptr);
  check(run_once(shared, 5) && run_once(other, 5), what);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (Executor* executor : {&shared, &shared, &other}) {
    threads.emplace_back([&stop, executor, what] {
      for (int64_t n = 1; !stop; n = n % 30000 + 777) check(run_once(*executor, n), what);
    });
  }
  for (int round = 0; round < 8; round++) {
    std::this_thread::sleep_for(std::chrono::microseconds(500 * round));
    check_in_child(
        [&] {
          Executor fresh(speculating_model(), shared_device({cores, "", 0, plain_machine()}),
                         nullptr);
          bool right = run_once(fresh, 9) && run_once(shared, 10000) && run_once(other, 2);
          std::thread thread([&] { right &= run_once(shared, 4099); });
          thread.join();
          check_in_child([&] { return run_once(shared, 12); }, what + ", of a child");
          return right && failures == 0;
        },
        what);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  check(run_once(shared, 31), what + ": the parent runs on");
}

// Does what a test wants in the middle of a run, and hands its input on.
class Visitor final : public VendorLibrary {
 public:
  explicit Visitor(std::function<void()>& visit) : visit_(visit) {}
  void run(uint32_t, std::span<const Tensor> inputs, std::span<Tensor> outputs, void*) override {
    visit_();
    outputs[0] = inputs[0];
  }

 private:
  std::function<void()>& visit_;
};

// y = -x, where the vendor library sees x first.
Model visited_model() {
  Model model = empty_model();
  const uint32_t x = add_vector(model, "x", Storage::input);
  const uint32_t v = add_vector(model, "v", Storage::vendor);
  const uint32_t y = add_vector(model, "y", Storage::output);
  model.steps.emplace_back(VendorCall{{{x}, {v}, "visit"}, 0});
  add_launch(model, {add_map(model, PlanOp::neg_, {v}, y)});
  return model;
}

float negated(Executor& executor, float x, int64_t n = 3) {
  std::vector<float> data(static_cast<size_t>(n), x);
  const Tensor input = vector_tensor(data);
  const std::vector<Tensor> outputs = executor.run(std::span(&input, 1), {});
  return reinterpret_cast<const float*>(outputs[0].data)[0];
}

void test_runs_inside_runs() {
  std::function<void()> visit;
  Executor executor(visited_model(), shared_device({2, "", 0, plain_machine()}),
                    std::make_unique<Visitor>(visit));
  int depth = 0;
  visit = [&] {
    if (++depth < 4) check(negated(executor, static_cast<float>(depth), 5 + depth) == -depth, "in");
    executor.forget();
    (void)executor.statistics();
    depth--;
  };
  for (int round = 0; round < 20; round++) check(negated(executor, 9) == -9, "outer run");
  // Two threads, each inside a run of its own model, run the other's.
  std::function<void()> first, second;
  std::atomic<int> inside{0};
  Executor a(visited_model(), shared_device({2, "", 0, plain_machine()}),
             std::make_unique<Visitor>(first));
  Executor b(visited_model(), shared_device({2, "", 0, plain_machine()}),
             std::make_unique<Visitor>(second));
  thread_local bool nested = false;
  const auto cross = [&inside](Executor& other) {
    if (std::exchange(nested, true)) return;
    inside++;
    while (inside < 2) std::this_thread::yield();
    check(negated(other, 4) == -4, "a run inside another one");
  };
  first = [&] { cross(b); };
  second = [&] { cross(a); };
  std::thread thread([&] { check(negated(a, 7) == -7, "crossing"); });
  check(negated(b, 8) == -8, "crossing");
  thread.join();
}

// Models of one core: as many runs at a time as the process has CPUs for, of one model and of
// several.
void test_lanes() {
  const DeviceRequest request{1, "", 0, plain_machine()};
  const int lanes = lanes_of(request);
  std::function<void()> visit;
  std::atomic<int> inside{0};
  std::atomic<bool> late{false};
  visit = [&] {
    inside++;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (inside < lanes && !late) {
      if (std::chrono::steady_clock::now() > deadline) late = true;
      std::this_thread::yield();
    }
  };
  Executor a(visited_model(), shared_device(request), std::make_unique<Visitor>(visit));
  Executor b(visited_model(), shared_device(request), std::make_unique<Visitor>(visit));
  for (const bool both : {false, true}) {
    inside = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < lanes; i++) {
      Executor& executor = both && i % 2 != 0 ? b : a;
      threads.emplace_back([&executor, i] {
        check(negated(executor, static_cast<float>(i), 3 + i) == static_cast<float>(-i), "lanes");
      });
    }
    for (std::thread& thread : threads) thread.join();
    check(!late, "runs at the same time");
  }
  visit = [] {};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4 * lanes; i++) {
    threads.emplace_back([&, i] {
      for (int64_t n = 1; n < 200; n++) {
        check(negated(n % 3 != 0 ? a : b, static_cast<float>(i), n) == static_cast<float>(-i),
              "more threads than lanes");
        if (n % 50 == 0) a.forget();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A thread that forks in the middle of its run cannot go on with it in the child.
void test_fork_inside_run() {
  std::function<void()> visit = [] {};
  Executor executor(visited_model(), shared_device({2, "", 0, plain_machine()}),
                    std::make_unique<Visitor>(visit));
  pid_t child = -1;
  visit = [&] { child = fork(); };
  const auto again = [&] {
    visit = [] {};
    return negated(executor, 2) == -2;
  };
  try {
    check(negated(executor, 1) == -1 && child > 0, "the parent's run goes on");
  } catch (const ExecutionError&) {
    alarm(60);
    _exit(child == 0 && again() ? 0 : 1);
  }
  int status = -1;
  check(waitpid(child, &status, 0) == child && status == 0, "the child runs again");
  check(again(), "the parent runs again");
}

class Ends final : public Interruption {
 public:
  explicit Ends(int64_t questions) : left_(questions) {}
  bool requested() noexcept override { return left_-- <= 0; }

 private:
  int64_t left_;
};

void test_ended_runs() {
  for (const int cores : {1, 2, 3}) {
    Executor executor(speculating_model(), shared_device({cores, "", 0, plain_machine()}), nullptr);
    int64_t ended = 0;
    for (int64_t questions = 0; questions < 1000; questions++) {
      Ends ends(questions);
      try {
        check(run_once(executor, 300000, {false, &ends, nullptr}), "a run that was left to itself");
        break;
      } catch (const CancelledError&) {
        ended++;
      }
      if (questions % 3 == 0)
        check(run_once(executor, 300000 - questions), "after a run was ended");
    }
    check(ended > 3 && ended < 1000, "runs are asked about, and end");
  }
}

// -- what control groups leave

class Tree {
 public:
  Tree() {
    char name[] = "/tmp/dvm_groups_XXXXXX";
    root_ = mkdtemp(name);
  }
  ~Tree() { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << '\n';
  }
  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

void test_unified_groups() {
  const Tree tree;
  check(cpus_of_control_groups(tree.root()) == INT_MAX, "no groups");
  check(memory_of_control_groups(tree.root()) == INT64_MAX, "no groups");
  tree.write("/proc/self/cgroup", "0::/pods/pod/me");
  tree.write("/proc/self/mountinfo", "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw");
  const std::string top = "/sys/fs/cgroup";
  tree.write(top + "/pods/pod/me/cpu.max", "max 100000");
  tree.write(top + "/pods/pod/cpu.max", "250000 100000");
  tree.write(top + "/pods/cpu.max", "800000 100000");
  check(cpus_of_control_groups(tree.root()) == 3, "two CPUs and a half, of the group around");
  for (const auto& [group, limit, used] : {std::tuple{"/pods/pod/me", "max", "5"},
                                           {"/pods/pod", "1000", "900"},
                                           {"/pods", "5000", "4950"}}) {
    tree.write(top + group + "/memory.max", limit);
    tree.write(top + group + "/memory.current", used);
  }
  check(memory_of_control_groups(tree.root()) == 50, "the outermost leaves least");
  tree.write(top + "/pods/memory.stat", "anon 7\ninactive_file 4000");
  check(memory_of_control_groups(tree.root()) == 100, "pages of files are given back");
  tree.write(top + "/pods/pod/memory.current", "1001");
  check(memory_of_control_groups(tree.root()) == 0, "nothing");
}

void test_groups_of_version_1() {
  const Tree tree;
  tree.write("/proc/self/cgroup", "5:memory:/docker/a\n4:cpu,cpuacct:/docker/a/b\n0::/");
  // A container that sees its own part of the hierarchy only.
  tree.write("/proc/self/mountinfo",
             "33 25 0:29 /docker/a /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
             "34 25 0:30 /docker/a /sys/fs/cgroup/cpu ro shared:9 - cgroup cgroup rw,cpu,cpuacct");
  tree.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "7000");
  tree.write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "6000");
  tree.write("/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 500");
  tree.write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  tree.write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  tree.write("/sys/fs/cgroup/cpu/b/cpu.cfs_quota_us", "50000");
  tree.write("/sys/fs/cgroup/cpu/b/cpu.cfs_period_us", "100000");
  check(memory_of_control_groups(tree.root()) == 1500, "of version 1");
  check(cpus_of_control_groups(tree.root()) == 1, "half a CPU is one");
}

}  // namespace
}  // namespace dvm::testing

int main() {
  using namespace dvm::testing;
  test_runs_inside_runs();
  test_lanes();
#if !defined(__SANITIZE_THREAD__)   // which follows no threads of forked children
#if !defined(__SANITIZE_ADDRESS__)  // whose allocator's locks children inherit as they are
  for (const int cores : {1, 2, 3}) test_forks(cores);
#endif
  test_fork_inside_run();
#endif
  test_ended_runs();
  test_unified_groups();
  test_groups_of_version_1();
  return report();
}
