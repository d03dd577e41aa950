package sandbox

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What landlock calls rights.
const (
	rightsRead = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	rightsFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	rightsDevice = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	rightsMake   = unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SYM |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK
	rightsNever = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
	rightsWrite = rightsRead | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | rightsMake
)

// devices are those that programs count on.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"} //nolint:gochecknoglobals // a constant list

// machine is what of the machine's /proc tells nothing about its processes, and programs read.
var machine = []string{ //nolint:gochecknoglobals // a constant list
	"/proc/cpuinfo", "/proc/filesystems", "/proc/loadavg", "/proc/meminfo", "/proc/stat", "/proc/uptime", "/proc/version",
	"/proc/sys/kernel", "/proc/sys/vm", "/proc/sys/fs", "/sys/devices/system/cpu", "/sys/fs/cgroup", "/sys/kernel/mm",
}

// landlockABI is the version of the kernel's interface; 0: there is none.
func landlockABI() int {
	n, _, err := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if err != 0 {
		return 0
	}
	return int(n)
}

// restrict takes from this thread all rights to files but those of the plan's view, and, where the
// kernel can, signals to processes outside and the network.
func restrict(p *plan) error {
	abi := landlockABI()
	rules := unix.LandlockRulesetAttr{Handled_access_fs: rightsWrite | rightsNever}
	if abi >= 4 && !p.Network && !p.Spaces {
		rules.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	size := unsafe.Offsetof(rules.Scoped)
	if abi >= 5 {
		rules.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= 6 {
		rules.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
		size = unsafe.Offsetof(rules.Quiet_access_fs)
	}
	if abi < 4 {
		size = unsafe.Offsetof(rules.Handled_access_net)
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rules)), size, 0)
	if errno != 0 {
		return fmt.Errorf("create the rules: %w", errno)
	}
	defer unix.Close(int(fd))
	if err := allowAll(int(fd), p, rules.Handled_access_fs); err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("keep the rules: %w", errno)
	}
	return nil
}

func allowAll(rules int, p *plan, handled uint64) error {
	for _, v := range p.View {
		rights := uint64(rightsRead)
		switch v.Kind {
		case "rw":
			rights = rightsWrite
		case "tmpfs":
			if !p.Spaces {
				continue // it would be the machine's
			}
			rights = rightsWrite
		case "link", "mask":
			continue
		}
		if err := allow(rules, v.Path, rights&handled); err != nil && (v.Kind != "tmpfs" || !errors.Is(err, os.ErrNotExist)) {
			return err
		}
	}
	for _, path := range devices {
		if err := allow(rules, path, rightsDevice&handled); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	open := machine
	if ownTable(p) {
		open = []string{"/proc"}
	}
	for _, path := range open {
		if err := allow(rules, path, rightsRead&handled); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// allow adds a rule for a path and all below it.
func allow(rules int, path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= rightsFile
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("allow %s: %w", path, errno)
	}
	return nil
}
