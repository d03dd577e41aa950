package tools

import (
	"crypto/sha256"
	"encoding/binary"
)

// ApprovalHash is what an approval is bound to: the tool, the hash that Canonical gives of its arguments, and the address of
// the workspace that the call was routed to.
func ApprovalHash(tool string, arguments []byte, workspace string) []byte {
	h := sha256.New()
	for _, field := range [][]byte{[]byte(tool), arguments, []byte(workspace)} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(field)))
		h.Write(n[:])
		h.Write(field)
	}
	return h.Sum(nil)
}
