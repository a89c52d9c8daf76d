/* Linked into the static program before its own code.
 *
 * A static glibc loads the plug-ins that /etc/nsswitch.conf names, such as mdns4_minimal or myhostname. They belong to
 * the glibc of the machine, and with another version than the linked one the program crashes. /etc/hosts and DNS need
 * no plug-in. */
#include <nss.h>

__attribute__((constructor)) static void resolve_without_plugins(void) {
    __nss_configure_lookup("hosts", "files dns");
    __nss_configure_lookup("passwd", "files");
}
