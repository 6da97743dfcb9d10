// SPDX-License-Identifier: Apache-2.0
#pragma once
/// An nginx on the loopback interface that serves a folder.

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loopback_server.hpp"
#include "temporary_folder.hpp"

namespace hotset::support {

/// Check `is_running` first: a machine may have no nginx. The destructor ends it.
class nginx_server {
 public:
  static constexpr const char* absent = "no nginx on this machine (Debian: nginx-light)";

  /// `settings`: of the server block. `listen`: what follows the port, such as " ssl".
  explicit nginx_server(const std::string& settings = {}, const std::string& listen = {}) {
    if (program().empty()) return;
    std::filesystem::create_directory(root());
    for (int tries = 0; tries < 10 && !is_running(); ++tries) start(settings, listen);
  }
  nginx_server(const nginx_server&) = delete;
  nginx_server& operator=(const nginx_server&) = delete;
  ~nginx_server() {
    if (process_ <= 0) return;
    ::kill(process_, SIGTERM);
    ::waitpid(process_, nullptr, 0);
  }

  [[nodiscard]] bool is_running() const { return process_ > 0; }
  /// The folder that it serves.
  [[nodiscard]] std::filesystem::path root() const { return folder_.path() / "root"; }
  [[nodiscard]] std::string url(const std::string& path, const std::string& scheme = "http") const {
    return scheme + "://127.0.0.1:" + std::to_string(port_) + "/" + path;
  }

 private:
  static std::string program() {
    for (const auto* const path : {"/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"})
      if (::access(path, X_OK) == 0) return path;
    return {};
  }
  void start(const std::string& settings, const std::string& listen) {
    {
      const owned_socket free_port;
      port_ = free_port.listen(1);
    }
    const auto here = folder_.path().string();
    // One process, so that a test that runs as root needs no second user who may read the folder.
    const auto path = folder_.write(
        "nginx.conf", "daemon off;\nmaster_process off;\npid " + here + "/pid;\nerror_log " + here +
                          "/errors;\nevents {}\nhttp {\naccess_log off;\nclient_body_temp_path " +
                          here + "/body;\nproxy_temp_path " + here + "/proxy;\nfastcgi_temp_path " +
                          here + "/fastcgi;\nuwsgi_temp_path " + here + "/uwsgi;\nscgi_temp_path " +
                          here + "/scgi;\nserver {\nlisten 127.0.0.1:" + std::to_string(port_) +
                          listen + ";\nroot " + root().string() + ";\n" + settings + "\n}\n}\n");
    const auto log = here + "/errors";
    const auto binary = program();
    process_ = ::fork();
    if (process_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGTERM);
      ::execl(binary.c_str(), "nginx", "-c", path.c_str(), "-p", here.c_str(), "-e", log.c_str(),
              static_cast<char*>(nullptr));
      ::_exit(127);
    }
    wait_until_it_answers();
  }
  void wait_until_it_answers() {
    for (int tries = 0; tries < 2000; ++tries) {
      if (owned_socket().connect(port_)) return;
      if (::waitpid(process_, nullptr, WNOHANG) == process_) break;  // the port was taken meanwhile
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    process_ = 0;
  }

  temporary_folder folder_;
  std::uint16_t port_ = 0;
  ::pid_t process_ = 0;
};

}  // namespace hotset::support
