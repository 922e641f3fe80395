// Formats: ELF64; the fat binary as nvcc embeds it (a wrapper that points to it, a header, entries); PTX text.
#include "images.h"

#include <elf.h>

namespace r3 {

namespace {

struct Wrapper {
    uint32_t magic, version;
    const void *data;
    const void *rest;
};
struct FatHeader {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t nbytes;
};
struct FatEntry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t nbytes;
    uint32_t packed_bytes;
    uint32_t unused[5];
    uint64_t flags;
};

const uint32_t WRAPPER_MAGIC = 0x466243b1, FAT_MAGIC = 0xba55ed50;
const uint16_t KIND_ELF = 2;
const uint64_t PACKED = 0x2000 | 0x8000;  // LZ4, zstd

bool is_elf(const void *data) { return !memcmp(data, ELFMAG, SELFMAG); }

template <class T>
const T *part(const Image &image, uint64_t offset, uint64_t count = 1) {
    bool inside = offset <= image.nbytes && count <= (image.nbytes - offset) / sizeof(T);
    return inside ? reinterpret_cast<const T *>(image.data + offset) : nullptr;
}

size_t elf_bytes(const unsigned char *data) {
    Elf64_Ehdr header;
    memcpy(&header, data, sizeof header);
    uint64_t end = header.e_shoff + static_cast<uint64_t>(header.e_shnum) * header.e_shentsize;
    uint64_t programs = header.e_phoff + static_cast<uint64_t>(header.e_phnum) * header.e_phentsize;
    if (programs > end) end = programs;
    for (unsigned i = 0; i < header.e_shnum; i++) {
        Elf64_Shdr section;
        memcpy(&section, data + header.e_shoff + static_cast<uint64_t>(i) * header.e_shentsize, sizeof section);
        uint64_t last = section.sh_type == SHT_NOBITS ? 0 : section.sh_offset + section.sh_size;
        if (last > end) end = last;
    }
    return end;
}

bool starts(const char *text, const char *with) { return !strncmp(text, with, strlen(with)); }

void elf_variables(const Image &image, Vector<Variable> &into) {
    const Elf64_Ehdr *header = part<Elf64_Ehdr>(image, 0);
    const Elf64_Shdr *sections = header ? part<Elf64_Shdr>(image, header->e_shoff, header->e_shnum) : nullptr;
    if (!sections || header->e_shstrndx >= header->e_shnum) return;
    uint64_t names = sections[header->e_shstrndx].sh_offset;
    for (unsigned i = 0; i < header->e_shnum; i++) {
        const Elf64_Shdr &table = sections[i];
        if (table.sh_type != SHT_SYMTAB || table.sh_link >= header->e_shnum) continue;
        size_t count = table.sh_size / sizeof(Elf64_Sym);
        const Elf64_Sym *symbols = part<Elf64_Sym>(image, table.sh_offset, count);
        for (size_t s = 0; symbols && s < count; s++) {
            const Elf64_Sym &symbol = symbols[s];
            if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || !symbol.st_size || symbol.st_shndx >= header->e_shnum)
                continue;
            const char *section = part<char>(image, names + sections[symbol.st_shndx].sh_name);
            const char *name = part<char>(image, sections[table.sh_link].sh_offset + symbol.st_name);
            if (!section || !name) continue;
            bool constant = starts(section, ".nv.constant3");
            if (constant || starts(section, ".nv.global")) into.push({name, constant});
        }
    }
}

// The word before '[', '=' or ';' of a declaration such as ".visible .global .align 4 .u32 counter;".
void ptx_variables(const Image &image, Vector<Variable> &into) {
    const char *text = reinterpret_cast<const char *>(image.data);
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : line) {
        const char *end = line + strcspn(line, "\n"), *space = line;
        while (space < end && !starts(space, ".global ") && !starts(space, ".const ")) space++;
        const char *stop = line + strcspn(line, "[=;\n");
        if (space >= stop || line[0] == '\t' || line[0] == '/') continue;
        while (stop > space && stop[-1] == ' ') stop--;
        const char *name = stop;
        while (name > space && name[-1] != ' ') name--;
        into.push({strndup(name, static_cast<size_t>(stop - name)), starts(space, ".const ")});
    }
}

void fat_variables(const Image &image, Vector<Variable> &into) {
    const FatHeader *header = part<FatHeader>(image, 0);
    for (uint64_t at = header->header_bytes; const FatEntry *entry = part<FatEntry>(image, at);
         at += entry->header_bytes + entry->nbytes) {
        Image held = {image.data + at + entry->header_bytes, entry->nbytes, nullptr};
        bool whole = at + entry->header_bytes + entry->nbytes <= image.nbytes && !(entry->flags & PACKED);
        if (whole && entry->kind == KIND_ELF && held.nbytes > sizeof(Elf64_Ehdr)) return elf_variables(held, into);
        if (!entry->header_bytes) return;
    }
}

}  // namespace

Image image_at(const void *given) {
    const unsigned char *data = static_cast<const unsigned char *>(given);
    uint32_t magic;
    memcpy(&magic, data, sizeof magic);
    if (magic == WRAPPER_MAGIC) {
        data = static_cast<const unsigned char *>(static_cast<const Wrapper *>(given)->data);
        memcpy(&magic, data, sizeof magic);
    }
    if (magic == FAT_MAGIC) {
        FatHeader header;
        memcpy(&header, data, sizeof header);
        return {data, header.header_bytes + header.nbytes, "fatbin"};
    }
    if (is_elf(data)) return {data, elf_bytes(data), "cubin"};
    const char *text = reinterpret_cast<const char *>(data);
    if (strstr(text, ".version")) return {data, strlen(text), "ptx"};
    return {data, 0, ""};
}

void image_variables(const Image &image, Vector<Variable> &into) {
    if (!strcmp(image.format, "cubin")) elf_variables(image, into);
    if (!strcmp(image.format, "fatbin")) fat_variables(image, into);
    if (!strcmp(image.format, "ptx")) ptx_variables(image, into);
}

}  // namespace r3
