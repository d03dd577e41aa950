//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// hasFilter tells that system calls can be filtered here.
const hasFilter = true

// Where the kernel shows a filter what is called.
const (
	callNumber = 0
	callArch   = 4
	callArg0   = 16 // the lower half of the first argument
	callArg1   = 24
)

// newSpaces are the flags that make namespaces. That for time is a signal's number to clone.
const newSpaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// refused are the calls that no build, test or program of a user needs, and that reach other
// processes, the kernel's own state, mounts, or go round this filter.
func refused() []uint32 {
	return append([]uint32{
		// mounts and roots
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
		unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_SETNS,
		unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_FANOTIFY_INIT,
		// other processes
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD,
		// the kernel
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
		unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD,
		unix.SYS_REBOOT, unix.SYS_ACCT, unix.SYS_SYSLOG, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_VHANGUP,
		unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME, unix.SYS_LOOKUP_DCOOKIE,
		// calls made by the kernel for the process, which no filter sees
		unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	}, refusedHere()...)
}

// shared are the calls for memory, semaphores and queues that all processes of a user share, where there is no namespace for them.
func shared() []uint32 {
	return []uint32{
		unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL,
		unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
	}
}

// ofOthers are the calls that change limits and priorities of the process that an argument names, and where that stands; 0
// is the caller itself. Without a process table of its own a command could end the user's processes by a limit.
func ofOthers() map[uint32]uint32 {
	return map[uint32]uint32{
		unix.SYS_PRLIMIT64: callArg0, unix.SYS_SETPRIORITY: callArg1, unix.SYS_IOPRIO_SET: callArg1, unix.SYS_SCHED_SETAFFINITY: callArg0,
		unix.SYS_SCHED_SETSCHEDULER: callArg0, unix.SYS_SCHED_SETPARAM: callArg0, unix.SYS_SCHED_SETATTR: callArg0,
	}
}

// allOfUser is the first argument with which two of them mean every process of the user, whoever is named.
func allOfUser() map[uint32]uint32 {
	return map[uint32]uint32{unix.SYS_SETPRIORITY: unix.PRIO_USER, unix.SYS_IOPRIO_SET: 3}
}

// families are the kinds of sockets that may be opened. Sockets in the file system are none of
// them: landlock does not say which may be connected to, and the user's agents, desktop and
// container engine listen on such, and troupe itself.
func families(network, spaces bool) []uint32 {
	if network || spaces { // in a network namespace there is nothing to reach but itself
		return []uint32{unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}
	}
	return nil
}

// program is the filter.
func program(network, spaces bool) []bpf.Instruction {
	refuse := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	missing := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}
	allow := bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	// section is a call whose argument decides: the rest is skipped for others.
	section := func(call uint32, body ...bpf.Instruction) []bpf.Instruction {
		return append([]bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: call, SkipTrue: uint8(len(body))}}, body...)
	}
	flags := func(mask uint32) []bpf.Instruction {
		return []bpf.Instruction{
			bpf.LoadAbsolute{Off: callArg0, Size: 4}, bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: mask, SkipTrue: 1}, refuse, allow,
		}
	}
	var sockets []bpf.Instruction
	sockets = append(sockets, bpf.LoadAbsolute{Off: callArg0, Size: 4})
	for _, f := range families(network, spaces) {
		sockets = append(sockets, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: f, SkipTrue: 1}, allow)
	}
	sockets = append(sockets, refuse)
	all := []bpf.Instruction{
		bpf.LoadAbsolute{Off: callArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS}, // numbers mean something else there
		bpf.LoadAbsolute{Off: callNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: otherNumbers, SkipTrue: 1},
		missing,
	}
	all = append(all, section(unix.SYS_SOCKET, sockets...)...)
	all = append(all, section(unix.SYS_CLONE, flags(newSpaces)...)...)
	all = append(all, section(unix.SYS_UNSHARE, flags(newSpaces|unix.CLONE_NEWTIME)...)...)
	all = append(all, section(unix.SYS_CLONE3, missing)...) // its flags are in memory; libraries fall back to clone
	all = append(all, section(
		unix.SYS_IOCTL, bpf.LoadAbsolute{Off: callArg1, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCSTI, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCLINUX, SkipTrue: 1},
		allow, refuse)...)
	// A pair of packets could send to, and be connected to, any socket in the file system.
	all = append(all, section(
		unix.SYS_SOCKETPAIR, bpf.LoadAbsolute{Off: callArg0, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.AF_UNIX, SkipTrue: 4},
		bpf.LoadAbsolute{Off: callArg1, Size: 4}, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf}, // the rest are flags
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_STREAM, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_SEQPACKET, SkipTrue: 1},
		refuse, allow)...)
	calls := refused()
	if !spaces {
		calls = append(calls, shared()...)
		for call, at := range ofOthers() {
			var body []bpf.Instruction
			if user, ok := allOfUser()[call]; ok {
				body = append(body, bpf.LoadAbsolute{Off: callArg0, Size: 4}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: user, SkipTrue: 1}, refuse)
			}
			body = append(body, bpf.LoadAbsolute{Off: at, Size: 4}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1}, refuse, allow)
			all = append(all, section(call, body...)...)
		}
	}
	for _, call := range calls {
		all = append(all, section(call, refuse)...)
	}
	return append(all, allow)
}

// filter has the kernel refuse calls of this thread and of all that comes from it.
func filter(network, spaces bool) error {
	raw, err := bpf.Assemble(program(network, spaces))
	if err != nil {
		return fmt.Errorf("assemble the filter: %w", err)
	}
	code := make([]unix.SockFilter, 0, len(raw))
	for _, i := range raw {
		code = append(code, unix.SockFilter{Code: i.Op, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	code = slices.Clip(code)
	fprog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&fprog)), 0, 0)
}
