#include "npu/host/control_groups.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <sstream>
#include <vector>

namespace dvm {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

bool lists(const std::string& commas, const std::string& wanted) {
  return ("," + commas + ",").find("," + wanted + ",") != std::string::npos;
}

// The path of this process's group in a hierarchy, by what /proc/self/cgroup says: of version 2
// where `controller` is empty. Empty: there is no such hierarchy.
std::string group_path(const std::string& groups, const std::string& controller) {
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {  // number:controllers:path
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? controllers.empty() : lists(controllers, controller)) {
      return line.substr(second + 1);
    }
  }
  return "";
}

// Where a hierarchy is mounted, and which of its groups is seen there.
struct Mount {
  std::string group, folder;
};

Mount mount_of(const std::string& root, const std::string& controller) {
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string skipped, type, source, options;
    Mount mount;
    fields >> skipped >> skipped >> skipped >> mount.group >> mount.folder;
    while (fields >> skipped && skipped != "-") continue;
    fields >> type >> source >> options;
    if (controller.empty() ? type == "cgroup2" : type == "cgroup" && lists(options, controller)) {
      return mount;
    }
  }
  return {};
}

// The folders of a process's group and of those around it, innermost first.
std::vector<std::string> find_folders(const std::string& root, const std::string& groups,
                                      const std::string& controller) {
  std::string path = group_path(groups, controller);
  if (path.empty()) return {};
  const Mount mount = mount_of(root, controller);
  if (mount.folder.empty()) return {};
  if (mount.group != "/") {
    path = path.starts_with(mount.group) ? path.substr(mount.group.size()) : "";
  }
  std::vector<std::string> folders;
  const std::string top = root + mount.folder;
  while (!path.empty() && path != "/") {
    folders.push_back(top + path);
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  folders.push_back(top);
  return folders;
}

std::string contents_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Of this process. Mounts are looked through again only where it is in other groups than before.
std::vector<std::string> folders_of(const std::string& root, const std::string& controller) {
  // Of each thread: a lock might be held while the process is forked.
  thread_local std::map<std::array<std::string, 3>, std::vector<std::string>> known;
  const std::string groups = contents_of(root + "/proc/self/cgroup");
  const auto [at, is_new] = known.try_emplace({root, groups, controller});
  if (is_new) at->second = find_folders(root, groups, controller);
  return at->second;
}

// The first number in a file, or `otherwise`: where there is no file, or it says "max".
int64_t number_in(const std::string& path, int64_t otherwise) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? number : otherwise;
}

int64_t entry_of(const std::string& path, const std::string& wanted) {
  std::ifstream file(path);
  std::string name;
  for (int64_t number = 0; file >> name >> number;) {
    if (name == wanted) return number;
  }
  return 0;
}

struct Quota {
  int64_t time = -1, period = 0;  // of a CPU; a negative time: none
};

Quota quota_of(const std::string& folder, bool unified) {
  if (!unified) {
    return {number_in(folder + "/cpu.cfs_quota_us", -1),
            number_in(folder + "/cpu.cfs_period_us", 0)};
  }
  std::ifstream file(folder + "/cpu.max");  // "max 100000", or "150000 100000"
  Quota quota;
  return file >> quota.time >> quota.period ? quota : Quota{};
}

int64_t left_in(const std::string& folder, bool unified) {
  const char* const limit_name = unified ? "/memory.max" : "/memory.limit_in_bytes";
  const char* const used_name = unified ? "/memory.current" : "/memory.usage_in_bytes";
  const int64_t limit = number_in(folder + limit_name, -1),
                used = number_in(folder + used_name, -1);
  if (limit < 0 || used < 0) return kNone;
  const int64_t files =
      entry_of(folder + "/memory.stat", unified ? "inactive_file" : "total_inactive_file");
  return std::max<int64_t>(limit - std::max<int64_t>(used - files, 0), 0);
}

}  // namespace

int cpus_of_control_groups(const std::string& root) {
  int64_t cpus = std::numeric_limits<int>::max();
  for (const char* const controller : {"", "cpu"}) {
    const bool unified = *controller == 0;
    for (const std::string& folder : folders_of(root, controller)) {
      const auto [time, period] = quota_of(folder, unified);
      if (time > 0 && period > 0) cpus = std::min(cpus, (time - 1) / period + 1);
    }
  }
  return static_cast<int>(cpus);
}

int64_t memory_of_control_groups(const std::string& root) {
  int64_t bytes = kNone;
  for (const char* const controller : {"", "memory"}) {
    const bool unified = *controller == 0;
    for (const std::string& folder : folders_of(root, controller)) {
      bytes = std::min(bytes, left_in(folder, unified));
    }
  }
  return bytes;
}

}  // namespace dvm
