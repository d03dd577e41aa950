package sandbox

import "golang.org/x/sys/unix"

const (
	auditArch    = unix.AUDIT_ARCH_X86_64
	otherNumbers = 0x40000000 // from here on calls have another layout (x32)
)

func refusedHere() []uint32 {
	return []uint32{unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS_USTAT, unix.SYS_SYSFS, unix.SYS__SYSCTL, unix.SYS_CREATE_MODULE}
}
